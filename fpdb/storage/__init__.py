"""LMDB environments, and every byte on disk.

No other folder imports LMDB or msgpack. A recipe is plain data here.
"""

from fpdb.storage.environment import (
    FAULTS,
    Cursor,
    Environment,
    ReadTransaction,
    WriteTransaction,
)
from fpdb.storage.format import pack, unpack
from fpdb.storage.shared_environment import LOCK_SECONDS

__all__ = [
    "FAULTS",
    "LOCK_SECONDS",
    "Cursor",
    "Environment",
    "ReadTransaction",
    "WriteTransaction",
    "pack",
    "unpack",
]
