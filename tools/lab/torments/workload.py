"""What the tormented processes do: random writes, each announced, done, and then acknowledged.

Keys come from a small space, so that adding one again replaces its document, and fingerprints from
a few centres, so that many documents resemble each other. In a database of similar texts they come
with sketches, which follow from them: a bit more or less is a sixteenth of the similarity. A
process needs to know nothing of what is stored, only its seed.
"""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb

import fpdb
from fpdb.tables import levels

KEYS = 1500  # of each writer
BUILT = 4000
CENTRES = 400
# These databases are small, and their tables shall have recent pages all the same.
levels._LEAST = 0
LARGEST_BATCH = 40
LARGEST_LOAD = 200
LARGEST_DELETION = 20
MOST = 12  # operations from one kill to the next
LONGEST = 0.02  # seconds from the last acknowledgement to the kill
TRANSACTION = 1 << 20  # documents: more than there are in any operation
# What a database of each kind of keys is queried for: similar texts, or bits.
SIMILARITIES = {"text": 0.8, "integer": None}
WORDS = "kite quarry river bridge warden harbour lantern orchard meadow granite ferry signal"

Operation = dict[str, Any]

# Each four bits of a fingerprint decide eight bytes of its sketch.
_BYTES = [[random.Random(16 * place + n).randbytes(8) for n in range(16)] for place in range(16)]


def key_of(kind: str, writer: int, number: int) -> str | int:
    """Return a writer's key; every tenth text key is too long for LMDB."""
    if kind == "integer":
        return writer * 1_000_000 + number
    return f"https://{writer}.example/{number}" + "/long" * (150 if number % 10 == 0 else 0)


class Script:
    """An endless list of operations of one writer, which its seed decides.

    An operation has `op` (add, delete or load) and `documents` or `keys`; it is one transaction.
    A document is a list of key, text, fingerprint and metadata.
    """

    def __init__(
        self, seed: int, kind: str = "text", writer: int = 0, skip: str = "batches", start: int = 0
    ) -> None:
        self._random = random.Random(f"{seed} {writer} {start}")
        self._centres = [random.Random(seed + n).getrandbits(64) for n in range(CENTRES)]
        self._kind, self._writer, self._skip = kind, writer, skip
        self._versions = itertools.count(start)

    def __iter__(self) -> Iterator[Operation]:
        chance = self._random
        makers = [self._one, self._batch, self._delete, self._delete_many, self._load]
        while True:
            yield chance.choices(makers, [8, 5, 3, 2, 1])[0]()

    def _key(self) -> str | int:
        return key_of(self._kind, self._writer, self._random.randrange(2, KEYS))

    def _fingerprint(self) -> int:
        number = self._random.choice(self._centres)
        for _ in range(self._random.randrange(4)):
            number ^= 1 << self._random.randrange(64)
        return number

    def document(self, key: str | int | None = None) -> list[Any]:
        """Make a document: mostly a fingerprint, sometimes a text, sometimes a short one."""
        key = self._key() if key is None else key
        version = next(self._versions)
        if self._random.random() < 0.1:
            words = self._random.choices(WORDS.split(), k=self._random.choice([1, 3, 30]))
            return [key, " ".join(words), None, {"version": version}]
        number = self._fingerprint()
        return [key, None, number, {"version": version, "fingerprint": f"{number:x}"}]

    def twins(self) -> list[list[Any]]:
        """Make the two documents that are never written one without the other."""
        version = next(self._versions)
        keys = [key_of(self._kind, self._writer, number) for number in (0, 1)]
        return [[key, None, self._fingerprint(), {"version": version}] for key in keys]

    def _one(self) -> Operation:
        skip = self._skip != "never" and self._random.random() < 0.4
        return {"op": "add", "documents": [self.document()], "skip": skip}

    def _batch(self) -> Operation:
        skip = self._skip == "batches" and self._random.random() < 0.3
        documents = [self.document() for _ in range(self._random.randint(2, LARGEST_BATCH))]
        return {"op": "add", "documents": documents + self.twins(), "skip": skip}

    def _delete(self) -> Operation:
        return {"op": "delete", "keys": [self._key()]}

    def _delete_many(self) -> Operation:
        count = self._random.randint(2, LARGEST_DELETION)
        return {"op": "delete", "keys": [self._key() for _ in range(count)]}

    def _load(self) -> Operation:
        keys = {self._key() for _ in range(self._random.randint(1, LARGEST_LOAD))}
        rows = [[key, None, self._random.getrandbits(64), None] for key in sorted(keys)]
        return {"op": "load", "documents": rows}


def sketch_of(fingerprint: int) -> bytes:
    """Return the sketch of a text with a fingerprint, as if there was a text."""
    return b"".join(_BYTES[place][fingerprint >> 4 * place & 15] for place in range(16))


def perform(db: fpdb.Database, operation: Operation, *, split: bool = False) -> list[str]:
    """Do an operation; give the statuses of added documents. To `split` it is a flaw."""
    if operation["op"] == "delete":
        db.delete_many(operation["keys"])
        return []
    if operation["op"] == "compact":
        db.compact()
        return []
    if operation["op"] == "load":
        rows = operation["documents"]
        db.add_fingerprints([row[0] for row in rows], [row[2] for row in rows])
        return []
    sketched = db.similarity is not None
    documents = [
        fpdb.Document(
            key, text, meta, number, sketch=sketch_of(number) if sketched and number else None
        )
        for key, text, number, meta in operation["documents"]
    ]
    parts = [[document] for document in documents] if split else [documents]
    skip = operation["skip"]
    return [
        added.status
        for part in parts
        for added in db.add_many(part, skip_duplicates=skip, transaction=TRANSACTION)
    ]


def write(
    channel: Any, path: str, seed: int, *, start: int = 0, writer: int = 0, skip: str = "batches",
    flaw: str = "", copies: bool = False,
) -> None:  # fmt: skip
    """Write until killed: announce each operation, do it, acknowledge it.

    `start` makes the operations of each round others; with `copies`, other databases are made
    between them. A `flaw` makes a known-bad writer: "early" acknowledges before it writes, "split"
    writes what belongs together in several transactions, "careless" opens LMDB without syncing.
    """
    if flaw == "careless":
        careful = lmdb.open
        lmdb.open = lambda *given, **named: careful(*given, **{**named, "sync": False})
    makers = itertools.cycle(["backup", "build", "create"])
    with fpdb.open(path) as db:
        for number, operation in enumerate(Script(seed, db.key_type, writer, skip, start)):
            channel.tell(begin=operation)
            if flaw == "early":
                channel.tell(done=None)
                perform(db, operation)
            else:
                channel.tell(done=perform(db, operation, split=flaw == "split"))
            if copies and number % 10 == 9:
                name = next(makers)
                copy = Path(path).with_name(f"{name}-{number}")
                channel.tell(copying=copy.name)
                make(name, db, copy)
                channel.tell(copied=copy.name)


def make(name: str, db: fpdb.Database | None, copy: Path) -> None:
    if name == "create":
        fpdb.create(copy).close()
    elif name == "build":
        keys, fingerprints = zip(*built(), strict=True)
        with fpdb.build(copy) as new:
            new.add_fingerprints(keys, fingerprints)
    elif db:
        (db.compact if name == "compact" else db.backup)(copy)


def built() -> Iterator[tuple[str, int]]:
    chance = random.Random(7)
    for number in range(BUILT):
        yield f"built {number}", chance.getrandbits(64)


def read(channel: Any, path: str, seed: int, writers: int) -> None:
    """Read until killed: what a snapshot shows must be whole. Report every now and then."""
    chance = random.Random(seed)
    with fpdb.open(path, readonly=True) as db:
        while True:
            checked, torn = 0, []
            for _ in range(20):
                with db.snapshot() as snapshot:
                    for writer in range(writers):
                        twins = [snapshot.get(key_of(db.key_type, writer, n)) for n in (0, 1)]
                        if len({twin and twin.meta["version"] for twin in twins}) > 1:
                            torn.append(f"the twins of writer {writer} differ: {twins}")
                    keys = [
                        key_of(db.key_type, chance.randrange(writers), chance.randrange(KEYS))
                        for _ in range(40)
                    ]
                    found = [d for d in map(snapshot.get, keys) if d is not None]
                    torn += [f"not whole: {each}" for each in found if not is_whole(db, each)]
                    torn += not_found(snapshot, found)
                checked += len(keys)
            channel.tell(checked=checked, torn=len(torn), example="".join(torn[:1]))


def not_found(snapshot: Any, documents: list[fpdb.Document]) -> list[str]:
    asked = [document for document in documents if document.fingerprint is not None]
    # With another bit changed in each, so that each table is asked.
    near = [document.fingerprint ^ 1 << place % 64 for place, document in enumerate(asked)]
    hits = snapshot.query_fingerprints(near, k=1)
    seen = set(zip(hits.queries.tolist(), hits.ids.tolist(), strict=True))
    return [
        f"{document.key} isn't found by its fingerprint"
        for place, document in enumerate(asked)
        if (place, document.id) not in seen
    ]


def is_whole(db: fpdb.Database, document: fpdb.Document) -> bool:
    """Return whether a document has the fingerprint that its metadata name, and its sketch."""
    said = document.meta.get("fingerprint") if isinstance(document.meta, dict) else None
    if said is None:
        return True
    number = int(said, 16)
    sketch = None if db.similarity is None else sketch_of(number)
    return (document.fingerprint, document.sketch) == (number, sketch)
