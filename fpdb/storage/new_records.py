"""Records of many new documents, packed from columns, without an object for each.

Their ids are given last: where documents are packed before their transaction, nobody knows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, Strings
from fpdb.models import DIGEST_BYTES, SKETCH_BYTES
from fpdb.storage.format import FURTHER, RECORD_SEED, Stored, pack_record, renumbered


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """Documents with text keys as columns: what `Stored` has, but for their ids.

    Fingerprints of short texts are any numbers, and missing digests and sketches are zeros. Further
    fields are there by their names, unless all documents lack them.
    """

    keys: Strings
    fingerprints: NDArray[np.uint64]
    short: Marks
    digests: NDArray[np.uint64]
    sketches: NDArray[np.uint8]
    characters: Places
    metas: Strings
    added: int
    further: Mapping[str, Strings]

    def __len__(self) -> int:
        return len(self.short)

    def strings(self, name: str) -> Strings:
        """Return a further field, whose missing values are empty."""
        return self.further.get(name, Strings.empty(len(self)))

    def pack(self, bits: int) -> Strings:
        """Pack records with fingerprints of N bits, but for the checksums, which ids belong to."""
        if not kernels.enabled:
            return Strings.of([pack_record(each, bits) for each in self.listed()])
        ends = np.empty(len(self), np.int64)
        strings = self.keys, self.metas, *map(self.strings, FURTHER)
        data = kernels.records.packed(
            [(each.data, each.ends) for each in strings],
            _bytes_of(self.fingerprints.astype(">u4" if bits == 32 else ">u8"), bits // 8),
            _bytes_of(self.short, 1)[:, 0],
            _bytes_of(self.digests, DIGEST_BYTES),
            np.ascontiguousarray(self.sketches),
            self.characters,
            self.added,
            ends,
        )
        return Strings(np.frombuffer(data, np.uint8), ends)

    def listed(self) -> list[Stored]:
        wide = self.fingerprints.ndim > 1
        rows = zip(
            self.keys.listed(),
            self.fingerprints.tolist(),
            self.short.tolist(),
            map(bytes, _bytes_of(self.digests, DIGEST_BYTES)),
            map(bytes, self.sketches),
            self.characters.tolist(),
            self.metas.listed(),
            zip(*(self.strings(name).listed() for name in FURTHER), strict=True),
            strict=True,
        )
        return [
            Stored(
                id=0,
                key=key.decode(),
                fingerprint=None if short else number[0] << 64 | number[1] if wide else number,
                added=self.added,
                digest=digest if short or any(digest) else b"",
                meta=meta,
                characters=characters,
                sketch=sketch if any(sketch) else b"",
                **dict(zip(FURTHER, further, strict=True)),
            )
            for key, number, short, digest, sketch, characters, meta, further in rows
        ]


def bare_columns(
    keys: Sequence[bytes], fingerprints: NDArray[np.uint64], added: int
) -> StoredColumns:
    count = len(keys)
    return StoredColumns(
        keys=Strings.of(keys),
        fingerprints=fingerprints,
        short=np.zeros(count, np.bool_),
        digests=np.zeros((count, DIGEST_BYTES // 8), np.uint64),
        sketches=np.zeros((count, SKETCH_BYTES), np.uint8),
        characters=np.zeros(count, np.int64),
        metas=Strings.empty(count),
        added=added,
        further={},
    )


def _bytes_of(array: NDArray[Any], width: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1, width)


def entries_of(records: Strings, ids: Column) -> Sequence[tuple[bytes, bytes]]:
    """Return packed records as entries of LMDB: their ids as keys, and records of these ids."""
    if kernels.enabled:
        digest = xxhash.xxh3_64_intdigest
        return kernels.records.numbered(records.data, records.ends, ids, digest, RECORD_SEED)
    rows = zip(ids.tolist(), records.listed(), strict=True)
    return [(number.to_bytes(8, "big"), renumbered(record, number)) for number, record in rows]
