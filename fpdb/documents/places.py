"""How far the files that are followed were read, stored with the documents that were in them."""

from collections.abc import Iterator

from fpdb.errors import DamagedError
from fpdb.models import Problem
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.format import FILES, FilePlace, FilePlaces


def read_places(txn: ReadTransaction) -> Iterator[FilePlace]:
    """Yield how far each file was read."""
    with txn.cursor(FILES) as cursor:
        for key, value in cursor:
            yield FilePlace.unpack(key, value)


def write_places(txn: WriteTransaction, places: FilePlaces) -> None:
    """Store how far files were read, and forget those with None."""
    for identity, place in places.items():
        if place is None:
            txn.delete(FILES, identity.pack())
        else:
            txn.put(FILES, identity.pack(), place.pack())


def check_places(txn: ReadTransaction) -> Iterator[Problem]:
    """Yield the places that can't be read."""
    with txn.cursor(FILES) as cursor:
        for key, value in cursor:
            try:
                FilePlace.unpack(key, value)
            except DamagedError as error:
                yield Problem(FILES, f"{bytes(key).hex()}: {error}")
