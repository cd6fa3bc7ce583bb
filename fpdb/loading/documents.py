"""The documents among sorted columns: verified, and made ready to be stored."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from operator import lt
from typing import Any

import numpy as np

from fpdb.corpus.reading import as_array
from fpdb.documents import Catalog, Stored
from fpdb.documents.catalog import DIGEST_BYTES, Columns
from fpdb.errors import InputError
from fpdb.fingerprint.minhash import SIZE
from fpdb.io.sorted_columns import Kind, Part, read_columns
from fpdb.loading.manifest import DOCUMENTS, SortedColumns
from fpdb.loading.order import AGAIN, Ascending, require_width, words_of
from fpdb.models import Key
from fpdb.storage import pack
from fpdb.storage.columns import Column
from fpdb.storage.records import LARGEST_KEY, LARGEST_META
from fpdb.tables.bits import to_ints

_MOST_CHARACTERS = 1 << 32
# The end of the year 9999, in seconds since 1970.
_LATEST = 253_402_300_800
_EMPTY_SKETCH = bytes(SIZE)


class Documents:
    """Reads the documents; behind the last one, the counts have been verified."""

    def __init__(self, source: SortedColumns, catalog: Catalog, now: int) -> None:
        self._source = source
        self._catalog = catalog
        self._bits = source.plan.bits
        self._words = words_of(self._bits)
        self._now = now
        self.rows = self.short = self.sketches = 0

    def __iter__(self) -> Iterator[Columns]:
        text = self._source.keys == "text"
        needed = {"key": Kind.TEXT if text else Kind.NUMBER}
        optional = {
            **dict.fromkeys(self._words, Kind.NUMBER),
            "digest": Kind.BYTES,
            "characters": Kind.NUMBER,
            "added": Kind.NUMBER,
            "meta": Kind.TEXT,
        }
        if self._catalog.sketched:
            optional["sketch"] = Kind.BYTES
        folder = self._source.directory / DOCUMENTS
        order = Ascending("key")
        last = ""
        for part in read_columns(folder, needed, optional):
            keys: list[str] | Column
            if text:
                keys = part.values["key"]
                last = self._require_keys(part, part.values["key"], last)
                ids = np.arange(self.rows, self.rows + part.rows, dtype=np.uint64)
            else:
                keys = ids = part.numbers["key"]
                order.require(part, [ids])
            yield self._columns(part, keys, ids)
        found, expected = (self.rows, self.short), (self._source.documents, self._source.short)
        if found != expected:
            raise InputError(
                f"{folder} has {found[0]:,} documents, {found[1]:,} of them short, "
                f"expected {expected[0]:,} and {expected[1]:,}",
                hint=AGAIN,
            )

    def _require_keys(self, part: Part, keys: list[str], last: str) -> str:
        """Require keys in the order of their characters, which is that of their bytes in UTF-8.

        The last one is given back.
        """
        if not all(keys) or len(max(keys, key=len)) * 4 > LARGEST_KEY:
            for place, key in enumerate(keys):
                try:
                    self._catalog.check_key(key)
                except InputError as error:
                    raise part.wrong(place, str(error), error.hint) from None
        if last >= keys[0] or not all(map(lt, keys, islice(keys, 1, None))):
            before = [last, *keys]
            place = next(place for place, key in enumerate(keys) if before[place] >= key)
            raise part.out_of_order(place, "key", twice=before[place] == keys[place])
        return keys[-1]

    def _columns(self, part: Part, keys: list[str] | Column, ids: Column) -> Columns:
        words = [part.numbers.get(name, np.zeros(part.rows, np.uint64)) for name in self._words]
        require_width(part, words[0], self._bits)
        missing = [
            part.absent.get(name, np.full(part.rows, name not in part.numbers))
            for name in self._words
        ]
        part.refuse(missing[0] != missing[-1], "the fingerprint is half null")
        short = missing[0]
        added = part.numbers.get("added", np.full(part.rows, self._now, np.uint64))
        if "added" in part.absent:
            added = np.where(part.absent["added"], np.uint64(self._now), added)
        part.refuse(added >= _LATEST, "found no seconds since 1970, up to the year 9999, as added")
        fingerprints = as_array(words)
        columns = Columns(ids, fingerprints, ~short, added, ())
        self.rows += part.rows
        self.short += int(short.sum())
        if self._source.keys == "integer" and not part.values and not short.any():
            return columns
        return columns._replace(stored=self._stored(part, keys, columns))

    def _stored(self, part: Part, keys: list[str] | Column, columns: Columns) -> list[Stored]:
        """Gather what there is to keep of each document."""
        characters = part.numbers.get("characters", np.zeros(part.rows, np.uint64))
        part.refuse(characters >= _MOST_CHARACTERS, "found no number of characters")
        digests = self._bytes(part, "digest", DIGEST_BYTES)
        placed = columns.placed.tolist()
        for place, there in enumerate(placed):
            if not there and not digests[place]:
                hint = "a short text is known by the digest of it"
                raise part.wrong(place, "found neither a fingerprint nor a digest", hint)
        numbers: list[int | None] = [*to_ints(columns.fingerprints, self._bits)]
        if not all(placed):
            pairs = zip(numbers, placed, strict=True)
            numbers = [number if there else None for number, there in pairs]
        sketches: Any = repeat(None)
        if self._catalog.sketched:
            found = self._bytes(part, "sketch", SIZE)
            sketches = [b"" if sketch == _EMPTY_SKETCH else sketch for sketch in found]
            self.sketches += sum(map(bool, sketches))
        own: Sequence[Key] = keys.tolist() if isinstance(keys, np.ndarray) else keys
        return list(
            map(
                Stored,
                columns.ids.tolist(),
                own,
                numbers,
                columns.added.tolist(),
                digests,
                _metas(part),
                characters.tolist(),
                sketches,
            )
        )

    @staticmethod
    def _bytes(part: Part, name: str, length: int) -> list[bytes]:
        values = [value or b"" for value in part.values.get(name, repeat(b"", part.rows))]
        if not {len(value) for value in values} <= {0, length}:
            place = next(at for at, value in enumerate(values) if len(value) not in {0, length})
            what = f"found a {name} of {len(values[place])} bytes, expected {length}"
            raise part.wrong(place, what)
        return values


def _metas(part: Part) -> list[bytes]:
    """Pack metadata, which come as JSON."""
    texts = part.values.get("meta")
    if texts is None:
        return [b""] * part.rows
    metas = []
    for place, text in enumerate(texts):
        try:
            value = None if text is None else json.loads(text)
            metas.append(b"" if value is None else pack(value, "metadata", LARGEST_META))
        except InputError as error:
            raise part.wrong(place, str(error), error.hint) from None
        except (ValueError, RecursionError) as error:
            raise part.wrong(place, f"the metadata aren't JSON: {error}") from None
    return metas
