"""The commands about stored documents: get and delete them."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.cli.options import DatabaseArgument, JsonOption, PrefixOption
from fpdb.cli.values import as_dict, parse_age
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
    """Print stored documents: key, id, fingerprint, time of adding, metadata as JSON.

    The fingerprint of a text with too few features is the word short. --prefix "" prints all.

    \b
    Example:
      fpdb get crawl.fpdb https://example.com/
      fpdb get crawl.fpdb --prefix https://example.com/ --json
    """
    require(bool(keys) != (prefix is not None), "give keys, or --prefix")
    missing: list[str] = []
    with databases.open_readonly(path) as database:
        bits = database.plan.bits
        for document in _found(database, keys, prefix, missing):
            plain = as_dict(document, bits)
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


def _found(
    database: fpdb.Database, keys: list[str] | None, prefix: str | None, missing: list[str]
) -> Iterator[fpdb.Document]:
    if prefix is not None:
        yield from database.scan(prefix=prefix)
        return
    kind = database.keys
    for key in keys or []:
        document = database.get(parse_key(key, kind))
        if document is None:
            missing.append(key)
        else:
            yield document


def delete(
    path: DatabaseArgument,
    keys: KeysArgument = None,
    keys_from: Annotated[
        str | None,
        typer.Option(
            "--keys-from", metavar="FILE|-", help="A file of keys, one a line; - is standard input."
        ),
    ] = None,
    prefix: PrefixOption = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            parser=parse_age,
            help="All documents added longer ago: 45s, 90m, 12h, 30d or 2w.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the keys that would go; delete nothing.")
    ] = False,
) -> None:
    """Delete documents by their keys, or those that fit --prefix and --older-than.

    With both conditions, only documents that fit both are deleted. A key that isn't there is no
    error.

    \b
    Example:
      fpdb delete crawl.fpdb https://example.com/
      fpdb delete crawl.fpdb --prefix https://example.com/ --older-than 30d --dry-run
    """
    named = bool(keys) or keys_from is not None
    conditions = prefix is not None or older_than is not None
    require(named != conditions, "give keys or --keys-from, or conditions: --prefix, --older-than")
    require(prefix != "", "every key begins with an empty --prefix")
    with (
        databases.open_readonly(path) if dry_run else databases.open_writable(path) as database,
    ):
        if named:
            wanted = _wanted(database, keys or [], keys_from)
        else:
            before = None if older_than is None else time.time() - older_than
            scanned = database.scan(prefix=prefix or "", added_before=before)
            wanted = (document.key for document in scanned)
        _delete(database, wanted, named=named, dry_run=dry_run)


def _wanted(database: fpdb.Database, keys: Iterable[str], keys_from: str | None) -> Iterator[Key]:
    kind = database.keys
    lines = read_lines(keys_from) if keys_from is not None else iter(())
    seen: set[Key] = set()
    for source, text in chain(
        (("", key) for key in keys), ((f"{line.source}: ", line.text) for line in lines)
    ):
        if not text:
            continue
        try:
            key = parse_key(text, kind)
        except InputError as error:
            raise InputError(f"{source}{error}", hint=error.hint) from None
        if key not in seen:
            seen.add(key)
            yield key


def _delete(database: fpdb.Database, keys: Iterable[Key], *, named: bool, dry_run: bool) -> None:
    asked = 0

    def counted() -> Iterator[Key]:
        nonlocal asked
        for key in keys:
            asked += 1
            yield key

    if dry_run:
        deleted = 0
        for key in counted():
            if key in database:
                deleted += 1
                render.row(key)
    else:
        deleted = database.delete_many(counted())
    missing = f", not found: {asked - deleted:,}" if named and asked > deleted else ""
    render.note(f"{'would be deleted' if dry_run else 'deleted'}: {deleted:,}{missing}")
