"""An item pipeline for Scrapy that finds near-duplicates as they are crawled."""

import asyncio
import logging
import math
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import fpdb
from fpdb.integrations.batcher import Batcher

try:
    from itemadapter import ItemAdapter
    from scrapy.exceptions import DropItem
    from scrapy.http import Response
except ImportError:
    raise fpdb.MissingExtraError(
        "the pipeline is for Scrapy, which isn't installed", hint="pip install 'fpdb[scrapy]'"
    ) from None

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

_Result = TypeVar("_Result")
_Number = TypeVar("_Number", int, float)

logger = logging.getLogger(__name__)
_ACTIONS = ("tag", "drop")
_MARKUPS = ("text", "html")


class NearDuplicatesPipeline:
    """Stores a fingerprint of each item, and tags or drops the near-duplicates of stored ones.

    Settings, with their defaults:

    - `FPDB_DATABASE`: the directory of the database, which is created if it doesn't exist
    - `FPDB_FIELD` ("text"): the field with the text, or a list of fields, which are joined
    - `FPDB_MARKUP` ("text"): "html" if the field holds HTML or a response; its main content is used
    - `FPDB_KEY_FIELD` ("url"): the field with the key
    - `FPDB_RECIPE`, `FPDB_K`: what a new database is created with; an existing one must have the
      same. A recipe is a name, or a file that ends in .toml
    - `FPDB_MIN_JACCARD`: the least Jaccard similarity of near-duplicates, by their sketches; a new
      database keeps them
    - `FPDB_ACTION` ("tag"): "tag" writes the key of the stored document into the item, "drop" drops
      the item
    - `FPDB_TAG_FIELD` ("near_duplicate_of"): the field for that key
    """

    def __init__(self, crawler: "Crawler") -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._path = Path(_text(settings, "FPDB_DATABASE"))
        self._fields = _names(settings, "FPDB_FIELD", "text")
        self._key_field = _text(settings, "FPDB_KEY_FIELD", "url")
        self._tag_field = _text(settings, "FPDB_TAG_FIELD", "near_duplicate_of")
        self._drops = _choice(settings, "FPDB_ACTION", _ACTIONS) == "drop"
        self._marked = _choice(settings, "FPDB_MARKUP", _MARKUPS) == "html"
        if self._marked:
            fpdb.html_text("")  # raises now if a package is missing
        self._untagged = self._failed = False
        self._min_jaccard = _number(settings, "FPDB_MIN_JACCARD", float, above=0, most=1)
        self._database = _open(
            self._path,
            _recipe(settings),
            _number(settings, "FPDB_K", int, above=-1),
            sketched=self._min_jaccard is not None,
        )

    @classmethod
    def from_crawler(cls, crawler: "Crawler") -> Self:
        """Check the settings and open the database; an error ends the crawl at its start."""
        return cls(crawler)

    def open_spider(self, spider: object = None) -> None:  # noqa: ARG002 - of older Scrapys
        """Start the thread that adds to the database."""
        self._batcher = Batcher(self._database, self._min_jaccard)
        self._pages = ThreadPoolExecutor(2, "fpdb-pages")

    async def close_spider(self, spider: object = None) -> None:  # noqa: ARG002
        """Close the database."""
        self._pages.shutdown(wait=False)
        await _Awaited(self._batcher.close())

    async def process_item(self, item: Any, spider: object = None) -> Any:  # noqa: ARG002
        """Store the fingerprint of an item, or tag or drop the item."""
        adapter = ItemAdapter(item)
        try:
            texts = [text for name in self._fields for text in await self._texts(name, adapter)]
            added = await _Awaited(self._batcher.add(self._document(adapter, texts)))
        except fpdb.InputError as error:
            self._count("unusable")
            logger.debug("No fingerprint of %s: %s", adapter.get(self._key_field), error)
            return item
        except fpdb.FpdbError as error:
            self._count("failed")
            self._complain(error)
            return item
        self._count(added.status)
        if added.status != "duplicate":
            return item
        nearest = added.matches[0]
        if self._drops:
            raise DropItem(f"Near-duplicate of {nearest.key} (distance {nearest.distance})")
        self._tag(adapter, nearest.key)
        return item

    async def _texts(self, name: str, adapter: "ItemAdapter") -> list[str]:
        value = adapter.get(name)
        if self._marked and value is not None:
            found: str = await _Awaited(self._pages.submit(_text_of_html, name, value))
            return [found]
        return _texts(name, value)

    def _document(self, adapter: "ItemAdapter", texts: list[str]) -> fpdb.Document:
        key = _first(adapter.get(self._key_field))
        if key is None or key == "":
            raise fpdb.InputError(f"the item has no field {self._key_field!r}, or an empty one")
        text = "\n".join(texts)
        if not text.strip():
            raise fpdb.InputError(f"the item has no text in {' or '.join(self._fields)}")
        return fpdb.Document(key if self._database.keys == "integer" else str(key), text)

    def _tag(self, adapter: "ItemAdapter", key: str | int) -> None:
        try:
            adapter[self._tag_field] = key
        except KeyError:
            self._count("untagged")
            if not self._untagged:
                self._untagged = True
                logger.exception(
                    "Items of the class %s have no field %s, so they aren't tagged; "
                    "add it to the class, or name another one with FPDB_TAG_FIELD",
                    type(adapter.item).__name__,
                    self._tag_field,
                )

    def _complain(self, error: fpdb.FpdbError) -> None:
        """Log the first error of the database in full; later ones are only counted."""
        if not self._failed:
            self._failed = True
            logger.error(
                "Items pass unchecked while the database fails: %s; %s",
                error,
                error.hint,
                exc_info=error,
            )

    def _count(self, what: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"fpdb/{what}")


class _Awaited:
    """Awaits the result of a thread, in an event loop of asyncio or in a reactor of Twisted."""

    def __init__(self, future: Future[_Result]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return (yield from _deferred(self._future).__await__())
        return (yield from asyncio.wrap_future(self._future, loop=loop).__await__())


def _deferred(future: Future[Any]) -> Any:
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    deferred: Deferred[Any] = Deferred()

    def settle() -> None:
        error = future.exception()
        if error is None:
            deferred.callback(future.result())
        else:
            deferred.errback(error)

    future.add_done_callback(lambda _: reactor.callFromThread(settle))
    return deferred


def _open(
    path: Path, recipe: fpdb.Recipe | None, k: int | None, *, sketched: bool
) -> fpdb.Database:
    """Create the database, or open the existing one."""
    sketch = "minhash" if sketched else None
    try:
        return fpdb.create(path, recipe=recipe or "web", k=3 if k is None else k, sketch=sketch)
    except fpdb.DatabaseExistsError:
        database = fpdb.open(path, recipe=recipe, k=k)
    if sketched and database.sketch is None:
        database.close()
        raise fpdb.InputError(
            f"{path} keeps no sketches, found FPDB_MIN_JACCARD",
            hint="leave FPDB_MIN_JACCARD out, or name a database that is created with it",
        )
    return database


def _text(settings: "BaseSettings", name: str, default: str = "") -> str:
    found = settings.get(name, default)
    if isinstance(found, Path):
        found = str(found)
    if not isinstance(found, str) or not found:
        raise fpdb.InputError(
            f"found {name} = {found!r}, expected a string with at least one character",
            hint=f'set {name} = "…" in the settings of the project or the spider',
        )
    return found


def _names(settings: "BaseSettings", name: str, default: str) -> list[str]:
    found = settings.getlist(name, [default])
    if not found or not all(isinstance(each, str) and each for each in found):
        raise fpdb.InputError(
            f"found {name} = {settings.get(name)!r}, expected the name of a field, or a list",
            hint=f'{name} = ["title", "text"] joins two fields',
        )
    return [each.strip() for each in found]


def _number(
    settings: "BaseSettings",
    name: str,
    kind: Callable[[str], _Number],
    *,
    above: int,
    most: float = math.inf,
) -> _Number | None:
    found = settings.get(name)
    if found is None:
        return None
    try:
        number = kind(str(found))  # `scrapy crawl -s` sets strings
        if above < number <= most:
            return number
    except ValueError:
        pass
    limit = "" if most == math.inf else f" and up to {most}"
    raise fpdb.InputError(
        f"found {name} = {found!r}, expected a number above {above}{limit}",
        hint="leave it out for the default",
    )


def _recipe(settings: "BaseSettings") -> fpdb.Recipe | None:
    found = settings.get("FPDB_RECIPE")
    if found is None or isinstance(found, fpdb.Recipe):
        return found
    name = _text(settings, "FPDB_RECIPE")
    return fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)


def _choice(settings: "BaseSettings", name: str, choices: tuple[str, ...]) -> str:
    found = _text(settings, name, choices[0])
    if found not in choices:
        raise fpdb.InputError(
            f"found {name} = {found!r}, expected one of {', '.join(choices)}",
            hint="leave it out for the first one",
        )
    return found


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
    texts = [each for each in values if each is not None]
    if not all(isinstance(each, str) for each in texts):
        raise fpdb.InputError(f"the field {name!r} holds something other than text")
    return texts
