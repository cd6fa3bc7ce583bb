"""What is done with a part of the input before the database is asked: in any process."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents import Prepared, Preparer
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe, to_int
from fpdb.fingerprint.minhash import SIZE
from fpdb.io import BadRecord, Fields, Part, Record, Text, table_records
from fpdb.models import Batch, Document, Key

_MOST_DIGITS = 20


class Refused(NamedTuple):
    """A record that can't be used: where it was read, why not, and a cure if there is one."""

    source: str
    reason: str
    hint: str = ""


class Taken(NamedTuple):
    """What became of the records of a part; `replaced` counts those with bytes that are no UTF-8.

    If the reading is strict, the first refused record is the last that was read.
    """

    read: int
    replaced: int
    prepared: Prepared
    refused: list[Refused]


class Question(NamedTuple):
    """A text or a fingerprint, and the name that answers go by; `source` is where it was read.

    Once it is `resolved`, it has a fingerprint, unless its text is short.
    """

    name: str | int
    text: str | None
    fingerprint: int | None = None
    source: str = ""
    replaced: bool = False
    sketch: bytes = b""


def parse_key(key: Key, kind: str) -> Key:
    """Make the kind of key that a database has of what was given or read."""
    if kind == "text":
        return str(key)
    number = key if isinstance(key, int) else -1
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS:
        number = int(key)
    if not 0 <= number < 1 << 64:
        raise InputError(
            f"found the key {str(key)[:40]!r}, expected a whole number from 0 to 2**64 - 1",
            hint="the keys of this database are integers",
        )
    return number


@dataclass(frozen=True)
class Taker:
    """Reads a part and prepares its documents for a database; can be pickled."""

    preparer: Preparer
    keys: str
    strict: bool

    def __call__(self, part: Part) -> Taken:
        """Prepare what can be added, and say of all else why not."""
        places: list[int] = []
        documents: list[Document] = []
        refused: dict[int, Refused] = {}
        records: list[Record | BadRecord] = []
        for place, record in enumerate(part()):
            records.append(record)
            try:
                documents.append(_document(record, self.keys))
                places.append(place)
            except InputError as error:
                refused[place] = Refused(record.source, str(error), error.hint)
                if self.strict:
                    break
        prepared, bad = self.preparer.sift(documents)
        for index, problem in bad:
            place = places[index]
            refused[place] = Refused(records[place].source, str(problem), problem.hint)
        if self.strict and bad:
            first = places[bad[0][0]]
            records, refused = records[: first + 1], {first: refused[first]}
            prepared = self.preparer(documents[: bad[0][0]])
        replaced = sum(isinstance(record, Record) and record.replaced for record in records)
        return Taken(
            len(records), replaced, prepared, [refused[place] for place in sorted(refused)]
        )


@dataclass(frozen=True)
class Resolver:
    """Turns texts that are asked for into fingerprints, and sketches; can be pickled.

    If matches are to be verified, a text without a sketch keeps its text, and finds equal ones.
    """

    preparer: Preparer
    sketched: bool = False

    def __call__(self, part: Part) -> list[Question | Refused]:
        """Make questions of the records of a part, and resolve them."""
        asked = [_question(record) for record in part()]
        questions = [each for each in asked if isinstance(each, Question)]
        resolved = iter(self.resolve(questions))
        return [next(resolved) if isinstance(each, Question) else each for each in asked]

    def resolve(self, questions: Sequence[Question]) -> list[Question | Refused]:
        """Give questions their fingerprints; texts that can't have one are refused."""
        texts = [q.text for q in questions if q.fingerprint is None and q.text is not None]
        if not (texts or self.sketched):
            return list(questions)
        try:
            batch = self.preparer.recipe.batch(texts, sketches=self.sketched)
        except InputError as error:
            if len(questions) == 1:
                return [Refused(questions[0].source, str(error), error.hint)]
            half = len(questions) // 2
            return self.resolve(questions[:half]) + self.resolve(questions[half:])
        found: list[Question | Refused] = []
        place = 0
        for question in questions:
            if question.fingerprint is not None or question.text is None:
                found.append(self._unverifiable(question) if self.sketched else question)
                continue
            sketch = b"" if batch.sketches is None else batch.sketches[place].tobytes()
            if batch.short[place] or (self.sketched and not any(sketch)):
                found.append(question)
            else:
                number = to_int(batch.fingerprints[place])
                found.append(question._replace(text=None, fingerprint=number, sketch=sketch))
            place += 1
        return found

    @staticmethod
    def _unverifiable(question: Question) -> Refused:
        reason = "found a ready fingerprint, expected a text, by which matches are verified"
        return Refused(question.source, reason, "ask without a least Jaccard similarity")


def sketch_rows(sketches: Sequence[bytes]) -> NDArray[np.uint8]:
    """Put the sketches of questions that are resolved into an array."""
    return np.frombuffer(b"".join(sketches), np.uint8).reshape(-1, SIZE)


def documents_of(
    table: Any,
    *,
    key: str | None = None,
    text: str | Iterable[str] = (),
    meta: str | Iterable[str] = (),
    fingerprint: str | None = None,
) -> Iterator[Document]:
    """Take the rows of a table as documents: of pandas, polars, pyarrow or whatever speaks Arrow.

    The columns are named as the fields of `fpdb ingest`: the key is "key", "id" or "url" and the
    text "text", "content" or "body" if you name no others, several texts are joined, and "*"
    keeps all other columns as metadata. A row that is no document is an `InputError`. It takes
    pyarrow, and a bounded amount of memory beside the table.
    """
    fields = Fields(
        key=key, text=_several(text), meta=_several(meta), fingerprint=fingerprint, header=True
    )
    for record in table_records(table, fields, sys.maxsize // 2):
        if isinstance(record, BadRecord) or record.key is None:
            reason = record.reason if isinstance(record, BadRecord) else "found no key"
            raise InputError(
                f"{record.source}: {reason}", hint="name other columns, or drop such rows first"
            )
        yield Document(record.key, record.text, record.meta, record.fingerprint)


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _document(record: Record | BadRecord, kind: str) -> Document:
    if isinstance(record, BadRecord):
        raise InputError(record.reason)
    if record.key is None:
        raise InputError("found no key")
    return Document(parse_key(record.key, kind), record.text, record.meta, record.fingerprint)


def _question(record: Record | BadRecord) -> Question | Refused:
    if isinstance(record, BadRecord):
        return Refused(record.source, record.reason)
    name = record.source if record.key is None else record.key
    return Question(name, record.text, record.fingerprint, record.source, record.replaced)


def batch_of(recipe: Recipe, texts: Sequence[Text]) -> Batch:
    """Fingerprint texts that were read."""
    return recipe.batch(text.text for text in texts)
