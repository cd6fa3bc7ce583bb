"""Text keys in their order: pages that lead from each to the id of its document."""

import hashlib

from fpdb.errors import InputError
from fpdb.storage import ReadTransaction
from fpdb.storage.format import LARGEST_KEY
from fpdb.storage.text_pages import LONGEST_TEXT, find_text
from fpdb.tables.sorted_pages import TextPages, seek

KEYS = "keys"
key_pages = TextPages(KEYS)
_DIGEST_BYTES = 32
# Bytes of a long key before its digest.
HEAD_BYTES = LONGEST_TEXT - _DIGEST_BYTES


def key_bytes(key: str) -> bytes:
    """Return the bytes under which a key is found; a long one is cut, and a digest is appended."""
    try:
        data = key.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the key {key!r} holds half a surrogate pair", hint="keys are valid Unicode"
        ) from None
    if len(data) < LONGEST_TEXT:
        return data
    if len(data) > LARGEST_KEY:
        raise InputError(
            f"found a key of {len(data):,} bytes, expected at most {LARGEST_KEY:,}",
            hint="use a digest of it as the key, and keep it in the metadata",
        )
    digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return data[:HEAD_BYTES] + digest


def find_key(txn: ReadTransaction, text: bytes) -> int | None:
    """Return the id that the bytes of a key lead to."""
    cursor = txn.kept_cursor(KEYS)
    if not seek(cursor, text):
        return None
    key, page = cursor.item()
    return find_text(page, key_pages.seed_at(key), text)
