"""Check that what a database's iteration finds is also found by key, as nearly every call looks."""

from collections.abc import Iterable, Iterator

from fpdb.models import Problem
from fpdb.storage import ReadTransaction


def check_lookups(txn: ReadTransaction, names: Iterable[str]) -> Iterator[Problem]:
    """Look every key up from the root of its tree, and compare its order with the one before.

    An iteration goes from page to page and never asks which way a key leads down the tree; a
    lookup asks nothing else. If each key that is there is found, and they are in order, then so is
    the place of any other.
    """
    for name in names:
        yield from _check(txn, name)


def _check(txn: ReadTransaction, name: str) -> Iterator[Problem]:
    database, get = txn.databases[name], txn.raw.get
    kinds = [kind for kind, there in database.flags().items() if there]
    if kinds:
        yield Problem(name, f"its entries are kept as {', '.join(sorted(kinds))}, expected none")
    entries = disordered = unfound = 0
    last = first_disordered = first_unfound = b""
    with txn.cursor(name) as cursor:
        for key in map(bytes, cursor.iternext(keys=True, values=False)):
            if key <= last:
                first_disordered = first_disordered or key
                disordered += 1
            if get(key, None, database) is None:
                first_unfound = first_unfound or key
                unfound += 1
            last = key
            entries += 1
    if disordered:
        yield Problem(name, f"{disordered} keys aren't in order, first {first_disordered.hex()}")
    if unfound:
        yield Problem(name, f"{unfound} keys aren't found, first {first_unfound.hex()}")
    if entries != txn.entries(name):
        yield Problem(name, f"{entries} entries, expected {txn.entries(name)}")
