"""Text keys in their order: sorted pages that lead from each to the id of its document."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import pairwise
from operator import itemgetter

import xxhash

from fpdb import kernels
from fpdb.errors import InputError
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.storage.columns import LARGEST, summed
from fpdb.storage.format import LARGEST_KEY, seed_of
from fpdb.storage.texts import (
    LONGEST_TEXT,
    TextEntry,
    find_text,
    pack_texts,
    unpack_texts,
)
from fpdb.tables.pages import out_of_order, page_and_next, seek

KEYS = "keys"
_SEED = seed_of(KEYS)
_DIGEST_BYTES = 32
# Bytes of a long key before its digest.
HEAD_BYTES = LONGEST_TEXT - _DIGEST_BYTES
# Entries that are packed into pages together.
_BLOCK = 1 << 14
# As of the pages of tables: one this small is joined with the one before if both then fill at most
# this, and two share their entries if both then fill at most that.
_SMALL, _ROOMY, _SHARED = LARGEST // 4, LARGEST * 3 // 4, LARGEST * 7 // 8

_text = itemgetter(0)


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


def seed_at(key: bytes | memoryview) -> int:
    """Return the seed of the checksum of the page with a key, which is its first text."""
    return _SEED ^ int.from_bytes(key[-8:])


def find_key(txn: ReadTransaction, text: bytes) -> int | None:
    """Return the id that the bytes of a key lead to."""
    cursor = txn.kept_cursor(KEYS)
    if not seek(cursor, text):
        return None
    key, page = cursor.item()
    return find_text(page, seed_at(key), text)


def scan_keys(txn: ReadTransaction, first: bytes = b"") -> Iterator[list[TextEntry]]:
    """Yield the entries of all pages in their order, or from the page on that a key belongs to."""
    with txn.cursor(KEYS) as cursor:
        found = seek(cursor, first) if first else cursor.first()
        last = b""
        while found:
            key, page = cursor.item()
            entries = unpack_texts(page, seed_at(key))
            if entries and entries[0][0] <= last:
                raise out_of_order(KEYS)
            yield entries
            last = entries[-1][0] if entries else last
            found = cursor.next()


def fill_keys(txn: WriteTransaction, entries: Iterable[TextEntry]) -> None:
    """Append sorted entries after all that are stored, page by page, each as full as possible."""
    block: list[TextEntry] = []
    for entry in entries:
        block.append(entry)
        if len(block) == _BLOCK:
            block = _append(txn, block, whole=False)
    _append(txn, block, whole=True)


def _append(txn: WriteTransaction, block: list[TextEntry], *, whole: bool) -> list[TextEntry]:
    """Append entries as pages; unless they are all, return those of the last page instead."""
    first = 0
    while first < len(block):
        page, after = pack_texts(block, first, len(block))
        if after == len(block) and not whole:
            break
        key = block[first][0]
        txn.append(KEYS, key, summed(page, seed_at(key)))
        first = after
    return block[first:]


def splice_keys(
    txn: WriteTransaction, insert: Sequence[TextEntry], remove: Sequence[bytes] = ()
) -> None:
    """Remove keys and insert others, both sorted and without repetitions; write each page once.

    A key that is stored already leads to the new id; removing a missing key is a no-op.
    """
    come = go = 0
    with txn.cursor(KEYS) as cursor:
        while come < len(insert) or go < len(remove):
            key = min([*(text for text, _ in insert[come : come + 1]), *remove[go : go + 1]])
            old, upper = page_and_next(cursor, key)
            to_come, to_go = len(insert), len(remove)
            if upper is not None:
                to_come = bisect_left(insert, upper, come, key=_text)
                to_go = bisect_left(remove, upper, go)
            # What comes before all keys is a new first key of its page.
            if old and old <= key and to_go == go and kernels.enabled:
                seed, page = seed_at(old), cursor.value()
                digest = xxhash.xxh3_64_intdigest(page[4:], seed)
                grown = kernels.texts.inserted(page, digest, insert, come, to_come)
                if grown is not None:
                    txn.put(KEYS, old, summed(grown, seed))
                    come = to_come
                    continue
            stored = unpack_texts(cursor.value(), seed_at(old)) if old else []
            gone = set(remove[go:to_go])
            fresh = {text for text, _ in insert[come:to_come]}
            kept = [entry for entry in stored if entry[0] not in gone and entry[0] not in fresh]
            entries = list(merge(kept, insert[come:to_come]))
            if entries != stored:
                at_end = upper is None and entries[: len(stored)] == stored
                _store(txn, entries, old, at_end=at_end)
            come, go = to_come, to_go


def _store(
    txn: WriteTransaction, entries: list[TextEntry], old: bytes | None, *, at_end: bool
) -> None:
    """Write the new entries of a page: as none, as one, joined with the one before, or split.

    Pages share their entries as those of tables do. What comes after all others fills pages.
    """
    parts, gone = [entries] if entries else [], [old] if old else []
    size = _size(entries)
    if size > LARGEST:
        before = None if at_end or not old else _page_before(txn, old)
        shared = None if at_end else _cut(before[1] + entries if before else entries)
        if shared and before:
            gone.append(before[0])
        parts = shared or _full(entries)
    elif parts and old and size < _SMALL and (before := _page_before(txn, old)):
        both = before[1] + entries
        if _size(both) <= _ROOMY:
            parts, gone = [both], [old, before[0]]
    for key in {*gone} - {part[0][0] for part in parts}:
        txn.delete(KEYS, key)
    for part in parts:
        key = part[0][0]
        txn.put(KEYS, key, summed(pack_texts(part, 0, len(part))[0], seed_at(key)))


def _page_before(txn: WriteTransaction, key: bytes) -> tuple[bytes, list[TextEntry]] | None:
    """Return the key and the entries of the page before another one."""
    with txn.cursor(KEYS) as cursor:
        if not cursor.set_key(key) or not cursor.prev():
            return None
        before, page = cursor.item()
        return bytes(before), unpack_texts(page, seed_at(before))


def _cut(entries: list[TextEntry]) -> list[list[TextEntry]] | None:
    """Cut entries evenly into two pages that have room for some more, or else into more pages.

    Return nothing if they are too many, or too long, and are filled instead.
    """
    for count, largest in ((2, _SHARED), (3, LARGEST), (4, LARGEST)):
        ends = [len(entries) * part // count for part in range(count + 1)]
        parts = [entries[low:high] for low, high in pairwise(ends)]
        if all(part and _size(part) <= largest for part in parts):
            return parts
    return None


def _size(entries: list[TextEntry]) -> int:
    """Return the bytes of a page of entries, or more than a page has if they don't fit."""
    page, after = pack_texts(entries, 0, len(entries))
    return len(page) if after == len(entries) else LARGEST + 1


def _full(entries: list[TextEntry]) -> list[list[TextEntry]]:
    """Cut entries so that pages are as full as possible."""
    parts, first = [], 0
    while first < len(entries):
        _, after = pack_texts(entries, first, len(entries))
        parts.append(entries[first:after])
        first = after
    return parts
