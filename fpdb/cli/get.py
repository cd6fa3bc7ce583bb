"""Print and delete stored documents."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    DatabaseArgument,
    JsonOption,
    PrefixOption,
    QuietOption,
    open_readonly,
    open_writable,
    parse_age,
    require,
)
from fpdb.cli.output import document_dict
from fpdb.errors import DocumentNotFoundError, InputError
from fpdb.ingest import parse_key
from fpdb.io import read_lines
from fpdb.models import Key

_SHOWN = 5

KeysArgument = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys of documents.")]


def get(
    path: DatabaseArgument,
    keys: KeysArgument = None,
    prefix: PrefixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print stored documents.

    Example:
      fpdb get crawl.fpdb https://example.com/
      fpdb get crawl.fpdb --prefix https://example.com/ --json
    """
    require(bool(keys) != (prefix is not None), "give keys, or --prefix")
    missing: list[str] = []
    with open_readonly(path) as database:
        bits = database.plan.bits
        for document in _find(database, keys, prefix, missing):
            plain = document_dict(document, bits)
            if as_json:
                render.record(plain)
            else:
                shown = (plain["key"], plain["id"], plain["fingerprint"] or "short", plain["added"])
                render.row(*shown, render.as_json(plain["meta"]))
    if missing:
        more = len(missing) - _SHOWN
        named = ", ".join(map(repr, missing[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
        raise DocumentNotFoundError(
            f"{path} has no document {named}", hint="fpdb get --prefix P lists the keys there are"
        )


def _find(
    database: fpdb.Database, keys: list[str] | None, prefix: str | None, missing: list[str]
) -> Iterator[fpdb.Document]:
    """Yield the documents that are asked for; collect the keys that aren't stored."""
    if prefix is not None:
        yield from database.scan(prefix=prefix)
        return
    for key in keys or []:
        document = database.get(parse_key(key, database.keys))
        if document is None:
            missing.append(key)
        else:
            yield document


def delete(
    path: DatabaseArgument,
    keys: KeysArgument = None,
    keys_from: Annotated[
        str | None,
        typer.Option("--keys-from", metavar="FILE|-", help="A file of keys, one a line."),
    ] = None,
    prefix: PrefixOption = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            parser=parse_age,
            help="All documents added longer ago, e.g. 45s, 90m, 12h, 30d or 2w.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the keys that would go; delete nothing.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Delete documents by key, prefix or age.

    Example:
      fpdb delete crawl.fpdb https://example.com/
      fpdb delete crawl.fpdb --prefix https://example.com/ --older-than 30d --dry-run
    """
    named = bool(keys) or keys_from is not None
    conditions = prefix is not None or older_than is not None
    require(named != conditions, "give keys or --keys-from, or conditions: --prefix, --older-than")
    require(prefix != "", "every key begins with an empty --prefix")
    with open_readonly(path) if dry_run else open_writable(path) as database:
        if named:
            found = dict.fromkeys(_read_keys(keys or [], keys_from, database.keys))
            wanted: Iterable[Key] = found
        else:
            before = None if older_than is None else time.time() - older_than
            scanned = database.scan(prefix=prefix or "", added_before=before)
            wanted = (document.key for document in scanned)
        deleted = 0
        if dry_run:
            for key in wanted:
                if key in database:
                    deleted += 1
                    render.row(key)
        else:
            deleted = database.delete_many(wanted)
    if not quiet:
        absent = len(found) - deleted if named else 0
        missing = f", not found: {absent:,}" if absent else ""
        render.note(f"{'would be deleted' if dry_run else 'deleted'}: {deleted:,}{missing}")


def _read_keys(keys: Iterable[str], keys_from: str | None, kind: str) -> Iterator[Key]:
    """Yield the keys that are given and those of a file, converted to a kind of keys."""
    lines = read_lines(keys_from) if keys_from is not None else iter(())
    for source, text in chain(
        (("", key) for key in keys), ((f"{line.source}: ", line.text) for line in lines)
    ):
        if not text:
            continue
        try:
            yield parse_key(text, kind)
        except InputError as error:
            raise InputError(f"{source}{error}", hint=error.hint) from None
