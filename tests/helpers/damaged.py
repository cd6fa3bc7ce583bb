"""What a check finds in a database after damage that is undone."""

import contextlib
from collections.abc import Callable

from fpdb import Database
from fpdb.documents.catalog import View
from fpdb.maintenance.check import check_view
from fpdb.models import Key, Problem
from fpdb.storage import WriteTransaction

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


def named(number: int, keys: str) -> Key:
    """The key of a document with a number."""
    return number if keys == "integer" else f"page/{number:04d}"
