"""Who reads a database now: LMDB's table of readers, as values."""

import os

from fpdb.models import Snapshots
from fpdb.storage.transactions import ReadTransaction


def open_snapshots(txn: ReadTransaction) -> Snapshots:
    """Count the snapshots that processes have open, without this one, and find the oldest."""
    own = os.getpid(), txn.number()
    found = [(int(pid), int(number)) for pid, _, number in txn.reader_table() if number.isdigit()]
    if own in found:
        found.remove(own)
    if not found:
        return Snapshots(0, None, 0)
    pid, oldest = min(found, key=lambda reader: reader[1])
    # Others may have committed since this snapshot began.
    return Snapshots(len(found), pid, max(own[1] - oldest, 0))
