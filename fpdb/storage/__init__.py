"""LMDB environments, and every byte on disk.

No other folder imports LMDB or msgpack. A recipe is plain data here.
"""

from fpdb.storage.environment import LOCK_SECONDS, Environment
from fpdb.storage.format import pack, unpack
from fpdb.storage.transactions import (
    Cursor,
    Ongoing,
    ReadTransaction,
    WriteTransaction,
    deadline,
)

__all__ = [
    "LOCK_SECONDS",
    "Cursor",
    "Environment",
    "Ongoing",
    "ReadTransaction",
    "WriteTransaction",
    "deadline",
    "pack",
    "unpack",
]
