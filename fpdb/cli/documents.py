"""Print, export and delete stored documents."""

import time
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

import fpdb
from fpdb.cli import render
from fpdb.cli.options import option, parse_age, require, takes
from fpdb.cli.output import Output, document_dict, typed_columns
from fpdb.errors import DocumentNotFoundError
from fpdb.flow import parse_key
from fpdb.io.files import read_texts
from fpdb.io.streams import packed, unpacked_name
from fpdb.models import Key
from fpdb.progress import tracked

_SHOWN = 5


@takes()
def get(
    path: Path,
    keys: list[str] | None = None,
    prefix: str | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
) -> None:
    """Print stored documents.

    Example:
      fpdb get crawl.fpdb --prefix https://example.com/ --json
    """
    listed = (prefix, since, until, limit) != (None,) * 4
    require(bool(keys) != listed, "give keys, or --prefix, --since, --until or --limit")
    missing: list[str] = []
    with fpdb.open(path, readonly=True) as database:
        if listed:
            scanned = database.scan(prefix=prefix or "", added_since=since, added_before=until)
            documents: Iterable[fpdb.Document | None] = islice(scanned, limit)
        else:
            documents = (database.get(parse_key(key, database.key_type)) for key in keys or [])
        grouped = ["group"] if database.has_groups else []
        render.columns("key", "id", "fingerprint", "added", *grouped, "metadata")
        for place, document in enumerate(documents):
            if document is None:
                missing += (keys or [])[place : place + 1]
                continue
            plain = document_dict(document, database.plan.bits)
            shown = (plain["key"], plain["id"], plain["fingerprint"] or "short", plain["added"])
            keeper = [plain[name] for name in grouped]
            render.result(plain, *shown, *keeper, render.as_json(plain["meta"]))
    if missing:
        more = len(missing) - _SHOWN
        named = ", ".join(map(repr, missing[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
        raise DocumentNotFoundError(
            f"{path} has no document {named}", hint="fpdb get --prefix P lists the keys there are"
        )


@takes(
    keys_from=option("--keys-from FILE|-", "A file with a key on each line."),
    older_than=option(
        "--older-than AGE",
        "All documents added longer ago, e.g. 45s, 90m, 12h, 30d or 2w.",
        parser=parse_age,
    ),
    dry_run=option("--dry-run", "Print the keys that would go; delete nothing."),
)
def delete(
    path: Path,
    keys: list[str] | None = None,
    keys_from: str | None = None,
    prefix: str | None = None,
    older_than: int | None = None,
    dry_run: bool = False,
) -> None:
    """Delete documents by key, prefix or age.

    Example:
      fpdb delete crawl.fpdb --prefix https://example.com/ --older-than 30d --dry-run
    """
    named = bool(keys) or keys_from is not None
    conditions = prefix is not None or older_than is not None
    require(named != conditions, "give keys or --keys-from, or conditions: --prefix, --older-than")
    require(prefix != "", "every key begins with an empty --prefix")
    with fpdb.open(path, readonly=dry_run) as database:
        if named:
            names = chain(keys or (), () if keys_from is None else read_texts(keys_from, "lines"))
            chosen = dict.fromkeys(parse_key(key, database.key_type) for key in names if key)
            wanted: Iterable[Key] = chosen
        else:
            before = None if older_than is None else time.time() - older_than
            scanned = database.scan(prefix=prefix or "", added_before=before)
            wanted = (document.key for document in scanned)
        if dry_run:
            deleted = 0
            for key in wanted:
                if key in database:
                    deleted += 1
                    render.result({"key": key}, key)
        else:
            total = len(chosen) if named else 0
            deleted = database.delete_many(tracked(wanted, "", "key", total))
    absent = len(chosen) - deleted if named else 0
    missing = f", not found: {absent:,}" if absent else ""
    render.summarise(
        None if dry_run else {"deleted": deleted, "absent": absent},
        f"{'would be deleted' if dry_run else 'deleted'}: {deleted:,}{missing}",
    )


@takes()
def export(
    path: Path, output: str = "-", since: float | None = None, until: float | None = None
) -> None:
    """Write documents out.

    Example:
      fpdb export crawl.fpdb --output crawl.fpdb.jsonl.gz

    Prints the portable form, which fpdb load takes; files .fpdb.jsonl have it
    too. --json and other suffixes are for other programs.
    """
    named = unpacked_name(output.lower()).endswith(".fpdb.jsonl")
    require(not (named and render.now.json), "--json is a format of its own")
    with fpdb.open(path, readonly=True) as database:
        if named or (output == "-" and not render.now.json):
            with render.opened(output) as raw, packed(raw, output) as file:
                count = database.dump(file, added_since=since, added_before=until)
        else:
            documents = database.scan(added_since=since, added_before=until)
            count = _write_documents(database, Output(output), documents)
    if output != "-":
        render.summarise(None, f"{output}: {render.plural(count, 'document')}")


def _write_documents(
    database: fpdb.Database, target: Output, documents: Iterable[fpdb.Document]
) -> int:
    count, bits = 0, database.plan.bits
    # Arrow has no numbers of 128 bits.
    as_number = bits <= 64 and target.form == "parquet"
    columns = {"key": "key", "fingerprint": "uint64" if as_number else "string"}
    columns |= {"added": "time", "meta": "string"}
    columns |= {"group": "key"} if database.has_groups else {}
    with target.opened(typed_columns(columns, database)):
        if target.form == "tsv":
            render.row(*columns)
        for document in tracked(documents, "", "document", len(database)):
            count += 1
            plain = document_dict(document, bits)
            key, digits, meta = plain["key"], plain["fingerprint"], render.as_json(plain["meta"])
            if target.form == "jsonl":
                del plain["id"]
                render.record(plain)
            elif target.form == "parquet":
                number = document.fingerprint if as_number else digits
                known = meta if document.meta is not None else None
                cells: list[object] = [key, number, document.added, known]
            else:
                cells = [key, digits or "short", plain["added"], meta]
            if target.form != "jsonl":
                target.write([*cells, document.group] if database.has_groups else cells)
    return count
