"""Write a command's results: lines, JSON lines, CSV or Parquet, to standard output or a file."""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import fpdb
from fpdb.cli import render
from fpdb.cli.options import require
from fpdb.io.streams import SUFFIXES, packed, suffix_of, unpacked_name
from fpdb.look.fields import ShownFields
from fpdb.models import SHOWN, Key
from fpdb.scratch import require_output

if TYPE_CHECKING:
    from fpdb.io.arrow import TableWriter

Found = TypeVar("Found")
# The title in the metadata of a document, or nothing.
title_in = ShownFields().title_of
# Characters of a file of CSV that decide on its mark.
_LOOKED_AT = 1 << 16
# What the suffix of an output says; standard output and special files have none.
_FORMS = {"": "tsv"} | {
    suffix: form for suffix, form in SUFFIXES.items() if form in ("jsonl", "tsv", "csv", "parquet")
}


class _SpreadsheetFile(io.TextIOWrapper):
    """A file of CSV with a byte order mark, without which Excel takes UTF-8 for something else.

    It has none where nothing but ASCII is among its first characters, for other programs.
    """

    _held: str | None = ""

    def write(self, text: str, /) -> int:
        if self._held is None:
            return super().write(text)
        self._held += text
        if not text.isascii() or len(self._held) > _LOOKED_AT:
            self._release("" if text.isascii() else "\ufeff")
        return len(text)

    def close(self) -> None:
        self._release("")
        super().close()

    def _release(self, mark: str) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            super().write(mark + held)


class Output:
    """Where results go, and in which format."""

    def __init__(self, output: str = "-") -> None:
        json, suffix = render.now.json, suffix_of(output)
        form = _FORMS.get(suffix)
        alone = not suffix or form in (None, "jsonl")
        require(not json or alone, "--json is a format of its own")
        self.path, self.form = output, "jsonl" if json else form or ""
        require(
            self.form,
            f"found the suffix {suffix!r} of {output}, expected one of "
            f"{', '.join(filter(None, _FORMS))}",
        )
        if output == "-" and not json and render.shows_tables():
            self.form = "table"
        require(
            self.form != "parquet" or output == unpacked_name(output),
            f"found {output}, expected {unpacked_name(output)}: Parquet is packed inside",
        )
        self._columns: list[str] = []
        self._table: TableWriter | None = None

    @contextlib.contextmanager
    def opened(
        self,
        columns: Mapping[str, str],
        shown: Sequence[str] = (),
        *,
        inputs: Sequence[str] = (),
        title: bool = False,
    ) -> Iterator[None]:
        """Open the output for a block that writes; a file appears, complete, when it ends.

        `columns` are names and Arrow types; on a terminal there are those `shown`, and a title.
        The output is none of the `inputs`, which are files, directories and "-".
        """
        if inputs:
            from fpdb.io.paths import files_of, path_names  # which takes long to import

            require_output(self.path, files_of(path_names(inputs)))
        if self.form == "table":
            render.columns(*(shown or columns), titled=title)
        self._columns = list(columns)
        with contextlib.ExitStack() as stack:
            if self.path != "-":
                file = stack.enter_context(render.opened(self.path))
                file = stack.enter_context(packed(file, self.path))
                if self.form == "parquet":
                    from fpdb.io.arrow import TableWriter  # it takes long to import

                    self._table = stack.enter_context(TableWriter(file, columns))
                else:
                    kind = _SpreadsheetFile if self.form == "csv" else io.TextIOWrapper
                    text = kind(file, "utf-8", errors="backslashreplace", newline="")
                    stack.enter_context(text)
                    stack.enter_context(contextlib.redirect_stdout(text))
            if self.form == "csv":
                render.cells(self._columns)
            yield

    def write(
        self,
        cells: Sequence[object],
        shown: Sequence[object] | None = None,
        title: Callable[[], str] | None = None,
    ) -> None:
        """Write one result; a line of text has its cells, unless others are `shown`."""
        if self.form in ("tsv", "table"):
            render.row(*(cells if shown is None else shown), title=title)
        elif self.form == "csv":
            render.cells([round(cell, 4) if isinstance(cell, float) else cell for cell in cells])
        elif self._table:
            self._table.add(tuple(cells))
        else:
            named = zip(self._columns, cells, strict=True)
            render.record({name: cell for name, cell in named if cell is not None})


def chosen(
    results: Iterable[Found], limit: int | None, rank: Callable[[Found], float] | None
) -> Iterable[Found]:
    """Return at most `limit` of some results; if they are ranked, those with the most first."""
    if rank is None:
        return islice(results, limit)
    if limit is None:
        return sorted(results, key=rank, reverse=True)
    return nlargest(limit, results, key=rank)


def enough(count: int, limit: int | None) -> str:
    """Return a remark where there may be more than the limit of a list."""
    return " (the --limit)" if count == limit else ""


def typed_columns(types: Mapping[str, str], database: fpdb.Database) -> dict[str, str]:
    """Return columns with their Arrow types; that of a "key" depends on the database."""
    key = "uint64" if database.key_type == "integer" else "string"
    return {name: key if kind == "key" else kind for name, kind in types.items()}


def title_of(database: fpdb.Database, key: Key) -> str:
    document = database.get(key)
    return "" if document is None else title_in(document.meta)


def format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def near_dict(near: fpdb.Match | fpdb.Pair) -> dict[str, Any]:
    """Return a match or a pair as plain data; its similarity only if texts were compared."""
    plain = near._asdict()
    if near.similarity is None:
        del plain["similarity"], plain["exact"]
    if plain.get("group", "") is None:
        del plain["group"]
    return plain


def likeness(near: fpdb.Match | fpdb.Pair, *, bits: bool) -> str:
    """Return how near two documents are: their similarity, or where bits count their distance."""
    return str(near.distance) if bits or near.similarity is None else f"{near.similarity:.2f}"


def stats_dict(stats: fpdb.models.Stats) -> dict[str, Any]:
    per_document = round(stats.bytes_used / stats.documents, 2) if stats.documents else None
    plain = dataclasses.asdict(stats)
    return plain | {"created": format_time(stats.created), "bytes_per_document": per_document}


def settings(stats: fpdb.models.Stats) -> dict[str, object]:
    """Return where a database is, and how it was created."""
    return {
        "path": stats.path,
        "recipe": f"{stats.recipe} ({stats.recipe_id})",
        "similarity": stats.similarity or "off",
        "k": stats.k,
        "plan": stats.plan,
        "keys": stats.keys,
        "capacity": f"{stats.capacity:,}",
    }


def document_dict(document: fpdb.Document, bits: int) -> dict[str, Any]:
    """Return a stored document as plain data, without the fields that only programs read."""
    plain, number = {name: getattr(document, name) for name in SHOWN}, document.fingerprint
    plain |= {
        "fingerprint": None if number is None else fpdb.format_fingerprint(number, bits),
        "added": format_time(document.added or 0),
    }
    return plain if document.group is None else plain | {"group": document.group}
