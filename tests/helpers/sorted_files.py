"""Write what a database holds as sorted columns, number by number; and compare two databases."""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fpdb import Database
from fpdb.documents import Stored

Columns = dict[str, list[Any]]
TYPES = {"digest": pa.binary(), "meta": pa.string(), "sketch": pa.binary()}


def stored_of(db: Database) -> list[Stored]:
    found: list[Stored] = []
    with db._environment.read() as txn:
        while batch := db._catalog.slice_after(txn, found[-1].key if found else None):
            found += batch
    if db.keys == "text":  # where long keys are kept by a digest
        found.sort(key=lambda stored: str(stored.key).encode())
    return found


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def words(number: int | None, bits: int) -> dict[str, int | None]:
    if bits < 128:
        return {"fingerprint": None if number is None else signed(number)}
    high, low = (None, None) if number is None else divmod(number, 1 << 64)
    return {
        "high": None if high is None else signed(high),
        "low": None if low is None else signed(low),
    }


def gathered(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Columns:
    rows = list(rows)
    return {name: [row[name] for row in rows] for name in names}


def manifest_of(db: Database) -> dict[str, Any]:
    stats = db.stats()
    return {
        "format": 1,
        "recipe": db.recipe.to_dict(),
        "recipe_id": db.recipe.id,
        "plan": db.plan.to_dict(),
        "keys": db.keys,
        "sketch": db.sketch,
        "capacity": stats.capacity,
        "documents": stats.documents,
        "short": stats.short,
    }


def columns_of(db: Database) -> dict[str, Columns]:
    """All columns, by the name of their directory."""
    bits, stored, names = db.plan.bits, stored_of(db), tuple(words(0, db.plan.bits))
    documents = [
        words(each.fingerprint, bits)
        | {
            "key": each.key if db.keys == "text" else signed(int(each.key)),
            "digest": each.digest or None,
            "characters": each.characters,
            "added": each.added,
            "meta": None if (meta := db[each.key].meta) is None else json.dumps(meta),
            "sketch": each.sketch or None,
        }
        for each in stored
    ]
    more = ("digest", "characters", "added", "meta", *(["sketch"] if db.sketch else []))
    found = {"documents": gathered(documents, ("key", *names, *more))}
    placed = [
        (each.fingerprint, place if db.keys == "text" else each.id)
        for place, each in enumerate(stored)
        if each.fingerprint is not None
    ]
    home = [words(number, bits) | {"id": signed(own)} for number, own in sorted(placed)]
    found["table-00"] = gathered(home, (*names, "id"))
    for at, table in enumerate(db.plan.tables[1:], 1):
        permuted = {table.permutation.apply_one(number) for number, _ in placed}
        rows = [words(number, bits) for number in sorted(permuted)]
        found[f"table-{at:02d}"] = gathered(rows, names)
    return found


def write_columns(folder: Path, columns: Columns, cuts: Iterable[int] = (), **options: Any) -> None:
    """Write columns into files that are cut at these rows."""
    text = any(isinstance(key, str) for key in columns.get("key", ()))
    types = TYPES | ({"key": pa.string()} if text else {})
    table = pa.table(
        {name: pa.array(column, types.get(name, pa.int64())) for name, column in columns.items()}
    )
    folder.mkdir(parents=True, exist_ok=True)
    places = sorted({0, len(table), *cuts})
    if len(places) == 1:
        places.append(0)
    for number, (first, behind) in enumerate(pairwise(places)):
        part = table.slice(first, behind - first)
        pq.write_table(part, folder / f"part-{number:05d}.parquet", **options)


def write_sorted_columns(
    directory: Path,
    db: Database,
    dice: random.Random | None = None,
    change: Callable[[dict[str, Columns], dict[str, Any]], None] = lambda *_: None,
) -> None:
    """Write a database as sorted columns; `change` may spoil them before."""
    columns, manifest = columns_of(db), manifest_of(db)
    change(columns, manifest)
    for name, own in columns.items():
        rows = len(next(iter(own.values())))
        cuts = [dice.randint(0, rows) for _ in range(dice.randint(0, 3))] if dice else ()
        write_columns(directory / name, own, cuts, row_group_size=7)
    (directory / "_SUCCESS").touch()
    (directory / "manifest.json").write_text(json.dumps(manifest))


def content_of(db: Database) -> dict[str, Any]:
    """Everything that is kept, whatever pages it stands on."""
    found: dict[str, Any] = {}
    with db._environment.read() as txn:
        for name in db._catalog.names:
            if name != "ids":
                with txn.cursor(name) as cursor:
                    found[name] = [(bytes(key), bytes(value)) for key, value in cursor]
        index = db._index
        for pages in (index.home, *index.further, *db._catalog.pages):
            rows = [zip(*(c.tolist() for c in page), strict=True) for page in pages.scan(txn)]
            found[pages.name] = [row for page in rows for row in page]
    stats = db.stats()
    found["counts"] = (stats.documents, stats.short, stats.sketches, stats.capacity, stats.plan)
    return found
