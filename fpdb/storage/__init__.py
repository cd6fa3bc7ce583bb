"""LMDB environments, and every byte on disk.

No other folder imports LMDB or msgpack. A recipe is plain data here.
"""

from fpdb.storage.environment import Cursor, Environment, Ongoing, ReadTransaction, WriteTransaction
from fpdb.storage.format import pack, unpack
from fpdb.storage.shared_environment import LOCK_SECONDS

__all__ = [
    "LOCK_SECONDS",
    "Cursor",
    "Environment",
    "Ongoing",
    "ReadTransaction",
    "WriteTransaction",
    "pack",
    "unpack",
]
