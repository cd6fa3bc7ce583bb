"""Questions to a database: where they come from, how they are asked, how answers are shown."""

import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.flow import Flow
from fpdb.cli.output import Form, Output
from fpdb.cli.sources import Base, Rejects
from fpdb.cli.values import jaccard_cells, near_dict
from fpdb.errors import InputError
from fpdb.io import Part, read_text
from fpdb.models import Matches
from fpdb.preparing import Question, Refused, Resolver, sketch_rows

BLOCK = 256
COLUMNS = {
    "query": "string",
    "key": "string",
    "distance": "int32",
    "similarity": "double",
    "jaccard": "double",
    "complete": "bool",
}
_SHOWN = 100
_NUMBERS = {
    Base.HEX: (16, re.compile(r"(0[xX])?[0-9a-fA-F]{1,64}")),
    Base.DECIMAL: (10, re.compile(r"[0-9]{1,64}")),
}


def from_texts(texts: list[str]) -> Iterator[Question]:
    """Ask for texts of the command line."""
    for number, text in enumerate(texts, 1):
        yield Question("text" if number == 1 else f"text:{number}", text)


def from_numbers(written: list[str], base: Base) -> Iterator[Question]:
    """Ask for fingerprints of the command line."""
    radix, pattern = _NUMBERS[base]
    for digits in written:
        if not pattern.fullmatch(digits):
            raise typer.BadParameter(f"{digits!r} is no fingerprint in {base} digits")
        yield Question(digits, None, int(digits, radix))


def from_files(paths: list[str], max_bytes: int) -> Iterator[Question]:
    """Ask for files that are one text each."""
    for path in paths:
        found = read_text(path, max_bytes)
        yield Question(path, found.text, source=path, replaced=found.replaced)


class Asker:
    """Asks a database, prints the answers, and remembers what is to be said about all of them."""

    def __init__(
        self,
        database: fpdb.Database,
        k: int | None,
        limit: int | None,
        rejects: Rejects,
        *,
        min_jaccard: float | None,
        target: Output,
    ) -> None:
        self.matched = 0
        self._database = database
        self._resolver = Resolver(database.preparer, sketched=min_jaccard is not None)
        self._min_jaccard = min_jaccard
        self._k = k
        self._limit = limit
        self._rejects = rejects
        self._target = target
        self._asked = self._short = self._cut = self._replaced = 0
        self._started = time.monotonic()

    def ask(self, questions: Iterable[Question]) -> None:
        """Ask one question after the other."""
        questions = iter(questions)
        while True:
            block: list[Question] = []
            try:
                block.extend(islice(questions, BLOCK))
            finally:
                # What was read before an error has its answer before it is said.
                self._ask_block(self._resolver.resolve(block))
            if not block:
                return

    def ask_parts(self, parts: Iterable[Part], flow: Flow[list[Question | Refused]]) -> None:
        """Ask for all records of parts."""
        flow.run(parts, self._resolver, self._ask_block)

    def _ask_block(self, block: list[Question | Refused]) -> None:
        bits = self._database.plan.bits
        # Those that have a fingerprint are looked up together.
        asked = [
            each
            for each in block
            if isinstance(each, Question) and each.fingerprint is not None
            if not each.fingerprint >> bits
        ]
        answers = self._database.query_each(
            [each.fingerprint for each in asked],
            k=self._k,
            limit=self._limit,
            min_jaccard=self._min_jaccard,
            sketches=sketch_rows([each.sketch for each in asked]),
        )
        for question in block:
            if isinstance(question, Refused):
                self._refuse(question)
                continue
            self._replaced += question.replaced
            try:
                self._show(question, self._answer(question, answers))
            except InputError as error:
                if not question.source:
                    raise
                self._refuse(Refused(question.source, str(error), error.hint))

    def _answer(self, question: Question, answers: Iterator[Matches]) -> Matches:
        k, limit, number = self._k, self._limit, question.fingerprint
        if number is None:
            self._short += 1
            text, least = question.text or "", self._min_jaccard
            return self._database.query(text, k=k, limit=limit, min_jaccard=least)
        if number >> self._database.plan.bits:  # which is refused
            return self._database.query_fingerprint(number, k=k, limit=limit)
        return next(answers)

    def _refuse(self, refused: Refused) -> None:
        if not refused.source:  # it was no record, but given with the command
            raise InputError(refused.reason, hint=refused.hint)
        self._rejects.add(refused.source, refused.reason, refused.hint)

    def _show(self, question: Question, found: Matches) -> None:
        self._asked += 1
        self.matched += len(found)
        if self._target.form is Form.JSONL:
            matches = list(map(near_dict, found))
            render.record({"query": question.name, "complete": found.complete, "matches": matches})
        elif self._target.cells:
            for match in found:
                near = (match.key, match.distance, match.similarity, match.jaccard)
                self._target.add(str(question.name), *near, found.complete)
        else:
            for match in found:
                shown = (question.name, match.key, match.distance, f"{match.similarity:.4f}")
                render.row(*shown, *jaccard_cells(match))
        if not found.complete:
            self._cut += 1
            if self._cut <= _SHOWN:
                render.note(
                    f"{question.name}: incomplete, because too many documents are that near"
                )

    def summarise(self, *, rate: bool) -> None:
        """Say what is to be known about the answers, and if wanted how fast they came."""
        if rate:
            seconds = time.monotonic() - self._started
            render.note(
                f"asked {self._asked:,}, matches {self.matched:,}; "
                f"{seconds:.2f} s, {self._asked / seconds:,.0f} questions/s"
            )
        if self._cut > _SHOWN:
            render.note(f"incomplete answers: {self._cut}")
        if self._short:
            minimum = self._database.recipe.grams.minimum
            render.note(
                f"short texts: {self._short} (fewer than {minimum} distinct features: "
                "they find equal texts only)"
            )
        if self._replaced:
            render.note(f"texts with bytes that are no UTF-8, replaced by U+FFFD: {self._replaced}")
        if self._rejects.count:
            render.note(f"bad records: {self._rejects.count}")
