"""The pages of a data file, and what a check finds after damage that is undone."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from fpdb import Database
from fpdb.documents.catalog import View
from fpdb.maintenance.check import check_view
from fpdb.models import Key, Problem
from fpdb.storage import WriteTransaction
from fpdb.storage.lmdb_file import BRANCH, NO_PAGE, parse_page
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

Damage = Callable[[WriteTransaction], object]


class Undone(Exception):  # noqa: N818 - it is no error
    """Ends a transaction without a trace."""


def problems(db: Database, damage: Damage = lambda _: None) -> list[Problem]:
    """What a check finds after damage, which is undone at the end."""
    with contextlib.suppress(Undone), db._environment.write() as txn:
        damage(txn)
        found = list(check_view(View(txn, db._index, db._catalog)))
        raise Undone
    return found


def spoil_bands(db: Database) -> None:
    """Change a byte of each page that searches read."""
    with db._environment.write() as txn:
        for key, value in [(bytes(key), bytes(value)) for key, value in txn.cursor("bands")]:
            txn.put("bands", key, value[:-1] + bytes([value[-1] ^ 1]))


def named(number: int, keys: str) -> Key:
    """The key of a document with a number."""
    return number if keys == "integer" else f"page/{number:04d}"


def tree_pages(path: Path) -> dict[int, int]:
    """The kinds of all pages that are branches or leaves of a tree."""
    found = {}
    with Survey(open_data(path)) as survey:
        pending = [tree.root for tree in survey.trees.values() if tree.root != NO_PAGE]
        for number in pending:
            page = parse_page(survey.file.page(number) or b"")
            found[number] = page.kind
            if page.kind == BRANCH:
                pending += [node.number for node in page.nodes]
    return found
