"""An item pipeline for Scrapy that finds near-duplicates as they are crawled."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import fpdb
from fpdb.integrations.batcher import Batcher, added_to, again_if_moved
from fpdb.integrations.remote import Remote

try:
    from itemadapter import ItemAdapter
    from scrapy.exceptions import DropItem, NotConfigured
    from scrapy.http import Response
    from scrapy.utils.misc import load_object
except ImportError:
    raise fpdb.MissingExtraError(
        "the pipeline is for Scrapy, which isn't installed", hint="pip install 'fpdb-store[scrapy]'"
    ) from None

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)
# After as many items, none of which could be used, a field is likely misnamed.
_FIRST = 20
_MOST_SOURCES = 10


class Setting(NamedTuple):
    """A setting: its default, what it is, and what converts it or raises ValueError."""

    default: Any
    expected: str
    convert: Callable[[Any], Any]


def _name(value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError
    return str(value)


def _names(value: Any) -> list[str]:
    names = value.split(",") if isinstance(value, str) else list(value)
    if not names:
        raise ValueError
    return [_name(name).strip() for name in names]


def _similarity(value: Any) -> float:
    if value == "off":
        return 0.0
    if not 0 < float(value) <= 1:
        raise ValueError
    return float(value)


def _share(value: Any) -> float:
    if not 0 <= float(value) <= 1:
        raise ValueError
    return float(value)


def _one_of(*choices: str) -> Setting:
    """Return a setting that has one of some values, by default the first."""
    allowed = dict(zip(choices, choices, strict=True))
    return Setting(choices[0], f"one of {', '.join(choices)}", allowed.__getitem__)


def _truth(value: Any) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}  # as Scrapy's own settings
    return known[str(value).lower()]


def _function(value: Any) -> Any:
    with contextlib.suppress(ImportError, NameError):
        function = load_object(value) if isinstance(value, str) else value
        if callable(function):
            return function
    raise ValueError


def _recipe(value: Any) -> fpdb.Recipe:
    if isinstance(value, fpdb.Recipe):
        return value
    name = _name(value)
    return fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)


SETTINGS = {
    "FPDB_ENABLED": Setting("1", "True or False", _truth),
    "FPDB_RESET": Setting("0", "True or False", _truth),
    "FPDB_DATABASE": Setting(
        "", "the directory of the database, or the address of a server", _name
    ),
    "FPDB_TOKEN": Setting("", "the token for a server", str),
    "FPDB_AWAY": _one_of("wait", "pass", "fail"),
    "FPDB_FIELD": Setting("text", "the field with the text, or a list of fields to join", _names),
    "FPDB_MARKUP": _one_of("text", "html"),
    "FPDB_KEY_FIELD": Setting("url", "the field with the key", _name),
    "FPDB_RECIPE": Setting(None, "the name of a recipe, or a file that ends in .toml", _recipe),
    "FPDB_K": Setting(None, "a whole number", lambda value: int(str(value))),
    "FPDB_SIMILARITY": Setting(None, "a number above 0 and up to 1, or off", _similarity),
    "FPDB_TEXTS": Setting(
        None, "a function that returns the text of a key, or its dotted path", _function
    ),
    "FPDB_ACTION": _one_of("tag", "drop"),
    "FPDB_TAG_FIELD": Setting("near_duplicate_of", "the field for the stored key", _name),
    "FPDB_PASSAGES_FIELD": Setting(None, "the field for the sources of its passages", _name),
    "FPDB_LEAST": Setting(0.1, "a number from 0 to 1", _share),
}


def _read(settings: "BaseSettings") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        value = settings.get(name, setting.default)
        try:
            values[name] = None if value is None else setting.convert(value)
        except fpdb.FpdbError:
            raise
        except (KeyError, TypeError, ValueError):
            raise fpdb.InputError(
                f"found {name} = {value!r}, expected {setting.expected}",
                hint="set it in the settings of the project or the spider",
            ) from None
    return values


class NearDuplicatesPipeline:
    """Stores a fingerprint of each item, and tags or drops the near-duplicates of stored ones.

    It reads the settings in `SETTINGS`. A database that doesn't exist is created. `fpdb serve` may
    be in its place.
    """

    def __init__(self, crawler: "Crawler") -> None:
        self._crawler = crawler
        self._settings = _read(crawler.settings)
        if not self._settings["FPDB_ENABLED"]:
            raise NotConfigured("FPDB_ENABLED is off")
        if self._settings["FPDB_MARKUP"] == "html":
            fpdb.html_text("")  # raises now if a package is missing
        self._reported: set[str] = set()
        self._ending: asyncio.Future[None] | None = None
        self._usable = self._unusable = 0
        self._database: fpdb.Database | Remote = _open(self._settings)
        self._sources: fpdb.Database | Remote | None = None
        if self._settings["FPDB_PASSAGES_FIELD"]:
            self._sources = self._database
            if isinstance(self._database, Remote):  # whose connection another thread uses
                self._sources = _open(self._settings)
            self._sources.passages("", least=0.0, limit=1)  # raises now if it keeps none
        stored = ""
        if not isinstance(self._database, Remote):
            stored = f" with {len(self._database):,} documents"
        logger.info(
            "Near-duplicates are found by %s%s, the texts of items in %s; fpdb %s",
            self._settings["FPDB_DATABASE"],
            stored,
            " and ".join(self._settings["FPDB_FIELD"]),
            fpdb.__version__,
        )

    @classmethod
    def from_crawler(cls, crawler: "Crawler") -> Self:
        """Check the settings and open the database; an error ends the crawl at its start."""
        return cls(crawler)

    def open_spider(self, spider: object = None) -> None:  # noqa: ARG002 - of older Scrapys
        """Start the thread that adds to the database."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise fpdb.InputError(
                "found a reactor without asyncio, expected the one that Scrapy uses by default",
                hint="leave TWISTED_REACTOR out of the settings",
            ) from None
        self._batcher = Batcher(
            self._database.add
            if isinstance(self._database, Remote)
            else added_to(
                self._database,
                self._settings["FPDB_SIMILARITY"] or None,
                self._text_of if self._settings["FPDB_TEXTS"] else None,
            )
        )
        self._pages = ThreadPoolExecutor(2, "fpdb-pages")
        self._asking = ThreadPoolExecutor(1, "fpdb-passages")

    async def close_spider(self, spider: object = None) -> None:  # noqa: ARG002
        self._pages.shutdown(wait=False)
        self._asking.shutdown(wait=False)
        await self._batcher.close()
        self._database.close()
        if self._sources is not None:
            self._sources.close()

    async def process_item(self, item: Any, spider: object = None) -> Any:  # noqa: ARG002
        """Store the fingerprint of an item, or tag or drop the item."""
        adapter = ItemAdapter(item)
        try:
            document = await self._document(adapter)
            [added] = await self._batcher.add([document])
            if isinstance(added, fpdb.FpdbError):
                raise added
            dropped = added.status == "duplicate" and self._settings["FPDB_ACTION"] == "drop"
            parts = [] if dropped else await self._parts(document)
        except fpdb.InputError as error:
            self._count("unusable")
            self._unusable += 1
            if self._unusable == _FIRST and not self._usable:
                self._report(
                    logging.WARNING,
                    "None of the first %s items could be used: %s (it has the fields %s); "
                    "FPDB_FIELD and FPDB_KEY_FIELD name fields",
                    _FIRST,
                    error,
                    ", ".join(map(str, adapter)) or "none",
                )
            key = adapter.get(self._settings["FPDB_KEY_FIELD"])
            logger.debug("No fingerprint of %s: %s", key, error)
            return item
        except fpdb.FpdbError as error:
            self._count("failed")
            message = "Items pass unchecked while the database fails: %s; %s"
            self._report(logging.ERROR, message, error, error.hint)
            if self._settings["FPDB_AWAY"] == "fail" and isinstance(self._database, Remote):
                self._end_crawl()
            return item
        self._usable += 1
        self._count(added.status)
        if not added.matches.complete:
            self._count("incomplete")
            self._report(
                logging.WARNING,
                "The search for near-duplicates of %s was incomplete, because too many stored "
                "documents are that near: duplicates may pass (fpdb/incomplete counts such items)",
                added.key,
            )
        if parts:
            self._count("copied")
            self._write(adapter, item, self._settings["FPDB_PASSAGES_FIELD"], parts)
        if added.status != "duplicate":
            return item
        nearest = added.matches[0]
        if dropped:
            near = f"distance {nearest.distance}"
            if nearest.similarity is not None:
                near = f"similarity {nearest.similarity:.2f}"
            raise DropItem(f"Near-duplicate of {nearest.key} ({near})")
        self._write(adapter, item, self._settings["FPDB_TAG_FIELD"], nearest.key)
        return item

    def _text_of(self, key: fpdb.models.Key) -> str | None:
        """Return the text of a stored document, or None if it isn't known or the project fails."""
        try:
            text: str | None = self._settings["FPDB_TEXTS"](key)
        except Exception:
            message = "FPDB_TEXTS fails, so the similarity of such documents is estimated: %s"
            self._report(logging.ERROR, message, key)
            return None
        return text

    async def _parts(self, document: fpdb.Document) -> list[dict[str, Any]]:
        """Return the documents with passages of one that was added, but not itself."""
        if self._sources is None:
            return []
        least, limit = self._settings["FPDB_LEAST"], _MOST_SOURCES + 1
        asking = partial(self._sources.passages, document.text or "", least=least, limit=limit)
        if isinstance(self._sources, fpdb.Database):
            asking = partial(again_if_moved, self._sources, asking)
        matches = await asyncio.wrap_future(self._asking.submit(asking))
        names = ("key", "words", "share", "other_share")
        return [
            {name: getattr(match, name) for name in names}
            for match in matches
            if match.key != document.key
        ][:_MOST_SOURCES]

    def _write(self, adapter: "ItemAdapter", item: Any, field: str, value: Any) -> None:
        try:
            adapter[field] = value
        except KeyError:
            self._count("untagged")
            self._report(
                logging.ERROR,
                "Items of the class %s have no field %s, so they aren't tagged; "
                "add it to the class, or name another one in the settings",
                type(item).__name__,
                field,
            )

    async def _document(self, adapter: "ItemAdapter") -> fpdb.Document:
        name, fields = self._settings["FPDB_KEY_FIELD"], self._settings["FPDB_FIELD"]
        key = _first(adapter.get(name))
        if key is None or key == "":
            raise fpdb.InputError(f"the item has no field {name!r}, or an empty one")
        texts: list[str] = []
        for field in fields:
            value = adapter.get(field)
            if self._settings["FPDB_MARKUP"] == "html" and value is not None:
                page = self._pages.submit(_text_of_html, field, value)
                texts.append(await asyncio.wrap_future(page))
            else:
                texts += _texts(field, value)
        text = "\n".join(texts)
        if not text.strip():
            raise fpdb.InputError(f"the item has no text in {' or '.join(fields)}")
        document = fpdb.Document(key if self._database.key_type == "integer" else str(key), text)
        if self._settings["FPDB_MARKUP"] == "text" and document.has_tags:
            self._report(
                logging.WARNING,
                'The text of %s has tags, which count as words; FPDB_MARKUP = "html" takes the '
                "text of HTML pages",
                key,
            )
        return document

    def _report(self, level: int, message: str, *values: object) -> None:
        """Log something about the whole crawl once, an error with its traceback."""
        if message not in self._reported:
            self._reported.add(message)
            logger.log(level, message, *values, exc_info=level == logging.ERROR)

    def _end_crawl(self) -> None:
        if self._ending is None and self._crawler.engine is not None:
            closing = self._crawler.engine.close_spider_async(reason="fpdb_failed")
            self._ending = asyncio.ensure_future(closing)

    def _count(self, what: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"fpdb/{what}")


def _open(settings: dict[str, Any]) -> fpdb.Database | Remote:
    """Create the database, or open the existing one, or reach the server."""
    path, recipe, k = (settings[f"FPDB_{name}"] for name in ("DATABASE", "RECIPE", "K"))
    similarity, texts = settings["FPDB_SIMILARITY"], settings["FPDB_TEXTS"]
    if path.startswith(("http://", "https://", "unix:")):
        if not (recipe is k is similarity is texts is None):
            raise fpdb.InputError(
                "found FPDB_RECIPE, FPDB_K, FPDB_SIMILARITY or FPDB_TEXTS, expected none of them "
                "with a server",
                hint="the database of the server has a recipe and a similarity, and no texts",
            )
        if settings["FPDB_RESET"]:
            raise fpdb.InputError(
                "found FPDB_RESET with a server, expected it with a database of this crawler alone",
                hint="other clients of the server may need its documents",
            )
        return Remote(path, settings["FPDB_TOKEN"], patient=settings["FPDB_AWAY"] == "wait")
    if settings["FPDB_RESET"]:
        with contextlib.suppress(fpdb.DatabaseNotFoundError), fpdb.open(path) as database:
            database.remove()
    wanted: dict[str, Any] = {} if similarity is None else {"similarity": similarity or None}
    passages = settings["FPDB_PASSAGES_FIELD"] is not None
    try:
        return fpdb.create(path, recipe=recipe or "web", k=k, passages=passages, **wanted)
    except fpdb.DatabaseExistsError:
        database = fpdb.open(path, recipe=recipe, k=k)
    if similarity is not None and bool(similarity) != (database.similarity is not None):
        stored = database.similarity or "off"
        database.close()
        raise fpdb.RecipeMismatchError(
            f"{path} was created with the similarity {stored}, found FPDB_SIMILARITY = "
            f"{similarity or 'off'}",
            hint="leave FPDB_SIMILARITY out, or name a database that doesn't exist",
        )
    return database


def _text_of_html(name: str, value: Any) -> str:
    if isinstance(value, Response):
        declared = value.headers.get("Content-Type")
        kind = declared.decode("latin-1") if declared else None
        return fpdb.html_text(value.body, content_type=kind).text
    value = _first(value)
    if not isinstance(value, str | bytes):
        raise fpdb.InputError(f"the field {name!r} holds neither HTML nor a response")
    return fpdb.html_text(value).text


def _first(value: Any) -> Any:
    """Return a value, or the first of a list; item loaders turn values into lists."""
    if isinstance(value, list | tuple):
        return value[0] if value else None
    return value


def _texts(name: str, value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    texts = [text for text in values if text is not None]
    if not all(isinstance(text, str) for text in texts):
        raise fpdb.InputError(f"the field {name!r} holds something other than text")
    return texts
