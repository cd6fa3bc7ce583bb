"""What a database must hold, by what its writers acknowledged, kept outside of them.

Writers announce an operation, do it, and acknowledge it. What was acknowledged must be there. Of
what was announced only, either all is there or nothing.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workload import is_whole, not_found, sketch_of

import fpdb
from fpdb.fingerprint.sketches import BINS, BITS, least_estimate

Value = tuple[int | None, Any]  # fingerprint (None: short), metadata
Contents = dict[str | int, Value]
_SHOWN = 5
# Documents that are looked for by their sketches.
_ASKED = 100
_LOWEST = int("1" * BINS, 16)  # the lowest bit of each bin


@dataclass
class Verdict:
    """What was wrong: acknowledged documents that weren't there, and everything else."""

    lost: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.lost and not self.problems


def contents(db: fpdb.Database) -> Contents:
    return {document.key: (document.fingerprint, document.meta) for document in db.scan()}


def flaws(db: fpdb.Database, whose: Callable[[Any], bool] = lambda _: True) -> list[str]:
    """Check a database: by its own means, and by looking for documents by their fingerprints.

    Some are looked for by their sketches.
    """
    problems = [f"{problem.where}: {problem.what}" for problem in db.check()]
    with db.snapshot() as snapshot:
        stored = list(snapshot.scan())
        if snapshot.has_groups:
            keepers = {document.key: document.group for document in stored}
            lost = (key for key, keeper in keepers.items() if keepers.get(keeper) != keeper)
            problems += [f"{key} is in no group" for key in lost]
        documents = [d for d in stored if d.fingerprint is not None and whose(d.key)]
        problems += not_found(snapshot, documents)
        sketched = [document for document in documents if document.sketch]
        some = sketched[:: 1 + len(sketched) // _ASKED]
        answers = snapshot.query_prepared(db.preparer.prepare(some)) if some else iter(())
        problems += [
            f"{document.key} isn't found by its sketch"
            for document, matches in zip(some, answers, strict=True)
            if document.key not in {match.key for match in matches}
        ]
    problems += [f"{each.key} isn't whole" for each in documents if not is_whole(db, each)]
    return problems[:_SHOWN]


class Oracle:
    """The documents that a database must hold, and the operations that are in flight."""

    def __init__(self, db: fpdb.Database, *, alone: bool = True) -> None:
        """Begin with an empty database; with other writers, one isn't `alone`."""
        self.documents: Contents = {}
        self.acknowledged = 0
        self.wrong: list[str] = []
        self._texts: dict[str | int, str] = {}  # of short documents
        self._sketches: dict[str | int, int] = {}  # by key, 0 if there is none
        self._recipe, self._k, self._alone = db.recipe, db.k, alone
        self._similarity, self._bands = db.similarity, db.plan.bands
        self._pending: dict[int, dict[str, Any]] = {}

    def copy(self) -> "Oracle":
        return copy.deepcopy(self)

    def hear(self, message: dict[str, Any], writer: int = 0) -> bool:
        """Take down a message of a writer; say whether it acknowledges something."""
        if "begin" in message:
            self._pending[writer] = message["begin"]
            return False
        if "done" not in message:
            return False
        operation = self._pending.pop(writer)
        changes, statuses = self._changes(operation, message["done"])
        said = message["done"]
        if said and statuses != said and len(said) > 1:
            self.wrong.append(f"found the statuses {said}, expected {statuses}"[:400])
        self._adopt(changes, operation)
        self.acknowledged += len(changes)
        return True

    def judge(
        self,
        db: fpdb.Database,
        *,
        whose: Callable[[Any], bool] = lambda _: True,
        writers: Iterable[int] | None = None,
    ) -> Verdict:
        """Compare a database with what was acknowledged, and adopt what was in flight.

        `whose` chooses the keys and `writers` the operations in flight, if others go on.
        """
        verdict = Verdict(0, [*flaws(db, whose), *self.wrong])
        self.wrong = []
        stored = {key: value for key, value in contents(db).items() if whose(key)}
        for writer in list(self._pending) if writers is None else writers:
            operation = self._pending.pop(writer, None)
            if operation is not None:
                self._settle(operation, stored, verdict)
        for key, value in self.documents.items():
            if whose(key) and stored.get(key) != value:
                verdict.lost += 1
                verdict.problems.append(f"{key!r:.60} has {stored.get(key)}, expected {value}")
        for key in stored.keys() - self.documents.keys():
            verdict.lost += 1
            verdict.problems.append(f"{key!r:.60} is there, expected nothing")
        del verdict.problems[_SHOWN:]
        self.documents = {k: v for k, v in self.documents.items() if not whose(k)} | stored
        return verdict

    def judge_file(self, path: Path) -> Verdict:
        """Open a database that nobody else uses, and judge it."""
        with fpdb.open(path) as db:
            return self.judge(db)

    def _settle(self, operation: dict[str, Any], stored: Contents, verdict: Verdict) -> None:
        # What a document resembled is known only if nobody else wrote meanwhile.
        changes, _ = self._changes(operation, None if self._alone else ["added"])
        before = {key: self.documents.get(key) for key in changes}
        now = {key: stored.get(key) for key in changes}
        if now == changes:
            self._adopt(changes, operation)
        elif now != before:
            verdict.problems.append(f"half of this is there: {operation!r:.200}")
            for key in changes:  # acknowledged already, so they aren't lost
                self.documents.pop(key, None)
                if key in stored:
                    self.documents[key] = stored[key]

    def _adopt(self, changes: dict[Any, Value | None], operation: dict[str, Any]) -> None:
        for key, value in changes.items():
            self._texts.pop(key, None)
            self._sketches.pop(key, None)
            if value is None:
                self.documents.pop(key, None)
            else:
                self.documents[key] = value
        for key, text, _, _ in operation.get("documents", ()):
            value = changes.get(key)
            if value and value[0] is None and text is not None:
                self._texts[key] = text
            if value and operation["op"] != "load":
                self._sketches[key] = self._sketch(text, value[0])

    def _changes(
        self, operation: dict[str, Any], said: list[str] | None
    ) -> tuple[dict[Any, Value | None], list[str]]:
        """Return what an operation changes, and with which statuses, by brute force.

        Of one document that may be skipped, its writer's word is taken: others write too.
        """
        if operation["op"] in {"delete", "compact"}:
            return dict.fromkeys(operation["keys"]), []
        skip = operation.get("skip", False)
        near = {**self.documents} if skip else {}
        texts = {**self._texts} if skip else {}
        sketches = {**self._sketches} if skip else {}
        changes: dict[Any, Value | None] = {}
        statuses = []
        for key, text, ready, meta in operation["documents"]:
            number = ready if text is None else self._fingerprint(text)
            there = key in self.documents or key in changes
            if len(operation["documents"]) == 1 and said:
                resembles = said == ["duplicate"]
            else:
                resembles = skip and self._resembles(key, text, number, near, texts, sketches)
            if resembles and not there:
                statuses.append("duplicate")
                continue
            changes[key] = near[key] = (number, meta)
            sketches[key] = self._sketch(text, number) if skip else 0
            texts.pop(key, None)
            if number is None:
                texts[key] = text
            statuses.append("short" if number is None else "replaced" if there else "added")
        return changes, statuses

    def _fingerprint(self, text: str) -> int | None:
        batch = self._recipe.batch([text])
        return None if batch.short[0] else int(batch.fingerprints[0])

    def _sketch(self, text: str | None, number: int | None) -> int:
        """Return the sketch of a document as a number, whose lowest bits are the first bin."""
        if self._similarity is None or number is None:
            return 0
        return int.from_bytes(
            sketch_of(number)
            if text is None
            else self._recipe.batch([text], sketches=True).sketches[0].tobytes(),
            "little",
        )

    def _resembles(
        self,
        key: Any,
        text: str | None,
        number: int | None,
        near: Contents,
        texts: dict[Any, str],
        sketches: dict[Any, int],
    ) -> bool:
        if number is None:
            others = [other for name, other in texts.items() if name != key]
            return text in others
        own = self._sketch(text, number)
        if own:
            others = (other for name, other in sketches.items() if other and name != key)
            return any(self._is_similar(own, other) for other in others)
        return any(
            other is not None and (other ^ number).bit_count() <= self._k
            for name, (other, _) in near.items()
            if name != key
        )

    def _is_similar(self, own: int, other: int) -> bool:
        """Return whether two sketches are similar enough and agree in a band."""
        assert self._similarity is not None
        assert self._bands is not None
        apart = own ^ other
        bins = apart | apart >> 2
        estimate = 1 - ((bins | bins >> 1) & _LOWEST).bit_count() / BINS / (1 - 2.0**-BITS)
        bits, count = self._bands.bits, self._bands.count
        return estimate >= least_estimate(self._similarity) and any(
            not apart >> bits * band & (1 << bits) - 1 for band in range(count)
        )
