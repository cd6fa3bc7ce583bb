"""Documents as columns, from the reader to the page; a single one is a block of one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.arrays import Column, Marks, Places, Strings
from fpdb.models import DIGEST_BYTES, KEEPER, SKETCH_BYTES, Key
from fpdb.storage.format import FURTHER, RECORD_SEED, Stored, pack_record, renumbered

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TextColumns:
    """Some texts as columns by which they are compared; a missing digest or sketch is zeros.

    Fingerprints of short texts are any numbers.
    """

    fingerprints: NDArray[np.uint64]
    digests: NDArray[np.uint64]
    sketches: NDArray[np.uint8]
    short: Marks

    @property
    def columns(self) -> list[NDArray[Any]]:
        return [self.fingerprints, self.digests, self.sketches, self.short]

    def __len__(self) -> int:
        return len(self.short)

    def __getitem__(self, places: slice | Places | Sequence[int]) -> Self:
        """Return some of the texts; a slice isn't copied."""
        return type(self)(*(column[places] for column in self.columns))

    @cached_property
    def sketched(self) -> Marks:
        """Marks of the texts with a sketch."""
        return np.asarray(self.sketches.any(axis=1))

    @cached_property
    def digested(self) -> Marks:
        """Marks of the texts with a digest that equals others."""
        return np.asarray(self.digests.any(axis=1))

    @cached_property
    def ready(self) -> Marks:
        """Marks of bare fingerprints, which are compared by themselves."""
        marks: Marks = ~(self.short | self.digested | self.sketched)
        return marks


@dataclass(frozen=True, eq=False)
class Packed:
    """The stored form of documents, made before a lock is taken: it doesn't depend on their ids.

    Text keys have the `names` under which they are found. Records lack their checksums, and an
    integer key without a record has an empty one. Each table of numbers of texts has a column.
    """

    names: Sequence[bytes]
    records: Strings
    numbers: Sequence[Strings]

    def __getitem__(self, places: Places) -> "Packed":
        names = _chosen(self.names, places) if self.names else ()
        numbers = [column.chosen(places) for column in self.numbers]
        return Packed(names, self.records.chosen(places), numbers)

    @classmethod
    def joined(cls, parts: Sequence["Packed"]) -> "Packed":
        return cls(
            [name for part in parts for name in part.names],
            Strings.joined([part.records for part in parts]),
            [Strings.joined(columns) for columns in zip(*(p.numbers for p in parts), strict=True)],
        )


@dataclass(frozen=True, eq=False)
class Block(TextColumns):
    """Some documents as columns: the fields of `Stored`.

    Further fields are there by their names, unless all documents lack them. The ids of documents
    with text keys are zeros until they are written. Texts, which aren't stored, are there if all
    are kept. Whoever changes other columns than ids and texts sets `packed` to None.
    """

    ids: Column
    keys: Sequence[Key]
    added: Places
    metas: Sequence[bytes]
    characters: Places
    further: dict[str, Sequence[bytes]] = field(default_factory=dict)
    texts: Sequence[str | None] = ()
    packed: Packed | None = None

    @classmethod
    def bare(cls, keys: Sequence[Key], bits: int, metas: Sequence[bytes] | None = None) -> Self:
        """Return documents of which nothing else is known, with fingerprints of zeros."""
        count, numbered = len(keys), len(keys) > 0 and isinstance(keys[0], int)
        return cls(
            np.zeros((count, 2) if bits == 128 else count, np.uint64),
            np.zeros((count, DIGEST_BYTES // 8), np.uint64),
            np.zeros((count, SKETCH_BYTES), np.uint8),
            np.zeros(count, np.bool_),
            np.array(keys, np.uint64) if numbered else np.zeros(count, np.uint64),
            keys,
            np.zeros(count, np.int64),
            [b""] * count if metas is None else metas,
            np.zeros(count, np.int64),
        )

    @classmethod
    def of(cls, documents: Sequence[Stored], bits: int) -> Self:
        """Return documents with fingerprints of N bits, but without their keepers."""
        numbers = [document.fingerprint for document in documents]
        prints = b"".join([(number or 0).to_bytes(max(bits, 64) // 8) for number in numbers])
        words = np.frombuffer(prints, ">u8").astype(np.uint64)
        sketches = b"".join([document.sketch.ljust(SKETCH_BYTES, b"\0") for document in documents])
        names = (name for name in FURTHER if name != KEEPER.name)
        further = {name: [getattr(document, name) for document in documents] for name in names}
        return cls(
            words.reshape(-1, 2) if bits == 128 else words,
            digest_rows([document.digest for document in documents]),
            np.frombuffer(sketches, np.uint8).reshape(-1, SKETCH_BYTES),
            np.array([number is None for number in numbers], np.bool_),
            np.array([document.id for document in documents], np.uint64),
            [document.key for document in documents],
            np.array([document.added for document in documents], np.int64),
            [document.meta for document in documents],
            np.array([document.characters for document in documents], np.int64),
            {name: values for name, values in further.items() if any(values)},
        )

    def __getitem__(self, places: slice | Places | Sequence[int]) -> Self:
        """Return some of the documents; a slice isn't copied."""
        packed = self.packed
        if not isinstance(places, slice):
            places = np.asarray(places, np.int64)
        elif places.indices(len(self)) == (0, len(self), 1):
            return self
        return replace(
            self,
            packed=packed and packed[np.arange(len(self))[places]],
            keys=_chosen(self.keys, places),
            metas=_chosen(self.metas, places),
            texts=_chosen(self.texts, places) if self.texts else (),
            further={name: _chosen(values, places) for name, values in self.further.items()},
            **{name: getattr(self, name)[places] for name in _ARRAYS},
        )

    @classmethod
    def joined(cls, blocks: Sequence[Self]) -> Self:
        """Return the documents of several blocks, of which there is at least one."""
        if len(blocks) == 1:
            return blocks[0]
        names = {name for block in blocks for name in block.further}
        packed = [block.packed for block in blocks if block.packed]
        return cls(
            packed=Packed.joined(packed) if len(packed) == len(blocks) else None,
            keys=[key for block in blocks for key in block.keys],
            metas=[meta for block in blocks for meta in block.metas],
            texts=[text for block in blocks for text in block.texts],
            further={
                name: [value for block in blocks for value in block.values(name)] for name in names
            },
            **{name: np.concatenate([getattr(b, name) for b in blocks]) for name in _ARRAYS},
        )

    @property
    def counts(self) -> list[int]:
        """The numbers of documents, of short ones, and of those with a sketch."""
        return [len(self), *map(int, map(np.count_nonzero, (self.short, self.sketched)))]

    def values(self, name: str) -> Sequence[bytes]:
        """Return a further field, whose missing values are empty."""
        return self.further.get(name) or [b""] * len(self)

    def with_rows(self, rows: Mapping[int, Stored], bits: int) -> Self:
        """Return documents of which some, by their places, are others."""
        every = [rows.get(place) or self.row(place) for place in range(len(self))]
        return replace(self.of(every, bits), texts=self.texts)

    @property
    def sizes(self) -> Places:
        """The bytes of each document that count for the size of a transaction."""
        sizes = self.sketched * SKETCH_BYTES
        for strings in (self.metas, *self.further.values()):
            sizes += np.fromiter(map(len, strings), np.int64, len(self))
        sizes += np.array([len(key) if isinstance(key, str) else 0 for key in self.keys], np.int64)
        return sizes

    def row(self, place: int) -> Stored:
        """Return one of the documents."""
        short = self.short[place]
        number = self.fingerprints[place].tolist()
        if self.fingerprints.ndim > 1:
            number = number[0] << 64 | number[1]
        stored = Stored(
            int(self.ids[place]),
            self.keys[place],
            None if short else number,
            int(self.added[place]),
            self.digests[place].tobytes() if short or self.digested[place] else b"",
            self.metas[place],
            int(self.characters[place]),
            self.sketches[place].tobytes() if self.sketched[place] else b"",
        )
        if not self.further:
            return stored
        further: dict[str, Any] = {name: self.further[name][place] for name in self.further}
        return stored._replace(**further)

    def rows(self) -> Iterator[Stored]:
        """Yield the documents one by one."""
        return map(self.row, range(len(self)))

    def pack(self, bits: int) -> Strings:
        """Pack records with fingerprints of N bits, but for the checksums, which ids belong to.

        Their keys are texts.
        """
        if len(self) < FEW or not kernels.enabled:
            return Strings.of([pack_record(self.row(at), bits) for at in range(len(self))])
        ends = np.empty(len(self), np.int64)
        keys = [str(key).encode() for key in self.keys]
        strings = map(Strings.of, (keys, self.metas, *map(self.values, FURTHER)))
        data = kernels.records.packed(
            [(column.data, column.ends) for column in strings],
            _bytes_of(self.fingerprints.astype(">u4" if bits == 32 else ">u8"), bits // 8),
            _bytes_of(self.short, 1)[:, 0],
            _bytes_of(self.digests, DIGEST_BYTES),
            np.ascontiguousarray(self.sketches),
            self.characters,
            self.added,
            ends,
        )
        return Strings(np.frombuffer(data, np.uint8), ends)


# Fewer documents are packed faster one by one.
FEW = 8
_ARRAYS = "ids", "fingerprints", "short", "added", "digests", "characters", "sketches"


def digest_rows(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return digests, of which some may be empty, as a column."""
    packed = b"".join([digest.ljust(DIGEST_BYTES, b"\0") for digest in digests])
    return np.frombuffer(packed, np.uint64).reshape(-1, DIGEST_BYTES // 8)


def _chosen(values: Sequence[T], places: slice | Places) -> Sequence[T]:
    if isinstance(places, slice):
        return values[places]
    return [values[place] for place in places.tolist()]


def _bytes_of(array: NDArray[Any], width: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1, width)


def entries_of(records: Strings, ids: Column) -> Sequence[tuple[bytes, bytes]]:
    """Return packed records as entries of LMDB: their ids as keys, and records of these ids."""
    if kernels.enabled:
        digest = xxhash.xxh3_64_intdigest
        return kernels.records.numbered(records.data, records.ends, ids, digest, RECORD_SEED)
    rows = zip(ids.tolist(), records.listed(), strict=True)
    return [(number.to_bytes(8, "big"), renumbered(record, number)) for number, record in rows]
