"""Damaged data files: what is read from them, what a check says of them, what a repair saves.

With changes that are `aimed` at LMDB's structure, only what readers and a deep check notice counts.
"""

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import xxhash
from frame import ControlError, Figures, apart, going
from spoil import AIMED, SPOILS, Parts, changed, intact, parts, spoil, values

import fpdb
from fpdb import Document, kernels
from fpdb.maintenance import check as checking
from fpdb.storage import format as layouts
from fpdb.storage import number_pages, text_pages
from fpdb.storage.seal import seal
from fpdb.tables.plan import choose_plan

_PROBES = 90
_CONTROLS = 12
_PADDING = b"x" * 20


class Source(NamedTuple):
    """An undamaged database, its answers, and what it holds."""

    path: Path
    whole: bytes
    parts: Parts
    contents: dict[Any, tuple[Any, ...]]
    before: dict[Any, tuple[Any, ...]]  # what it held before its last commit
    answers: dict[str, Any]
    questions: dict[str, Any]


TINY = fpdb.Recipe("tiny", clean=(), segment="whitespace", grams=fpdb.Grams(minimum=3))


class Shape(NamedTuple):
    name: str
    keys: str
    bits: int
    loaded: int
    added: int
    options: dict[str, Any]


SHAPES = [
    Shape("a few texts", "text", 64, 0, 150, {}),
    Shape("texts", "text", 64, 1500, 700, {}),
    Shape("numbers", "integer", 64, 6000, 200, {"similarity": None}),
    Shape("numbers with texts", "integer", 128, 0, 600, {}),
    Shape("narrow", "integer", 32, 3000, 200, {"k": 2, "similarity": None}),
    Shape("ten tables", "text", 64, 1000, 200, {"plan": choose_plan(64, 3, blocks=5)}),
]


# Most pages of the first are as a bulk load fills them, and so of the same length.
AIMED_SHAPES = [Shape("loaded", "integer", 64, 20_000, 60, {}), SHAPES[1], SHAPES[3]]

Contents = dict[Any, tuple[Any, ...]]


def create(work: Path, shape: Shape, seed: int) -> tuple[Path, Contents]:
    """Make a database with a history: loaded, added, replaced, deleted, big and short ones.

    Give its path, and what it held before the last commit.
    """
    dice = random.Random(f"{shape.name} {seed}")
    path = work / shape.name.replace(" ", "-")
    work.mkdir(exist_ok=True)
    words = [f"w{n}" for n in range(400)]

    def named(number: int) -> Any:
        return number * 7 if shape.keys == "integer" else f"https://example.org/{number * 7:06d}"

    recipe = TINY.with_bits(shape.bits)
    with fpdb.create(path, recipe=recipe, keys=shape.keys, **shape.options) as db:
        if shape.loaded:
            numbers = [dice.getrandbits(shape.bits) for _ in range(shape.loaded)]
            numbers[10:20] = [numbers[5]] * 10
            near = [number ^ 1 << dice.randrange(shape.bits) for number in numbers[:200]]
            numbers[200:400] = near
            db.add_fingerprints([named(n) for n in range(shape.loaded)], numbers)

        def document(number: int) -> Document:
            kind = dice.random()
            text = " ".join(dice.choices(words, k=2 if kind < 0.1 else dice.randrange(5, 30)))
            meta: Any = {"n": number, "pad": "x" * dice.choice([0, 20, 200])}
            if kind > 0.97:
                meta["big"] = "".join(dice.choices("abcdef", k=dice.choice([3000, 9000])))
            return Document(named(number), text, meta if kind > 0.2 else None)

        first = shape.loaded // 2
        chosen = [first + n for n in range(shape.added)]
        for start in range(0, len(chosen), 60):
            list(db.add_many(map(document, chosen[start : start + 60])))
        for _ in range(4):
            list(db.add_many(map(document, dice.sample(chosen, 20))))
            before = contents(db)
            db.delete_many(map(named, dice.sample(range(first + shape.added), 25)))
    return path, before


def contents(db: fpdb.Database) -> Contents:
    """Read everything that is kept of each document, but its id."""
    found = {}
    with db._environment.read() as txn:
        for document in db.scan():
            stored = db._catalog.find(txn, document.key)
            if stored is None:
                raise fpdb.DamagedError("it is there and isn't")
            found[document.key] = (*stored[2:],)
    return found


def prepare(work: Path, shape: Shape, seed: int) -> Source:
    """Make a database and take down its answers."""
    path, before = create(work, shape, seed)
    dice = random.Random(seed)
    with fpdb.open(path, readonly=True) as db:
        known = contents(db)
        placed = [value[0] for value in known.values() if value[0] is not None]
        probes = dice.sample(placed, min(_PROBES, len(placed)))
        probes += [number ^ 1 << dice.randrange(shape.bits) for number in probes[:50]]
        probes += [dice.getrandbits(shape.bits) for _ in range(20)]
        absent = [10**9 + n for n in range(30)] if shape.keys == "integer" else ["no", "zz", "\0"]
        keys = list(known)
        questions = {"probes": probes, "keys": dice.sample(keys, len(keys)) + absent}
        answers = ask(db, questions)
    assert not [each for each in answers.values() if isinstance(each, fpdb.FpdbError)]
    whole = (path / "data.mdb").read_bytes()
    return Source(path, whole, parts(path), known, before, answers, questions)


def ask(db: fpdb.Database, questions: dict[str, Any]) -> dict[str, Any]:
    """Ask a database every kind of question, each by itself; the answer may be an error."""
    probes, keys = questions["probes"], questions["keys"]
    asked: dict[str, Callable[[], Any]] = {
        "len": lambda: len(db),
        "scan": lambda: list(db.scan()),
        "keys": lambda: list(db),
        "hits": lambda: [part.tolist() for part in db.query_fingerprints(probes)],
        "text": lambda: [list(db.query(text)) for text in ("w1 w2 w3 w4 w5", "w1 w2", "")],
        "pairs": lambda: sorted(map(repr, db.pairs())),
        "pairs of bits": lambda: sorted(map(repr, db.pairs(k=db.k))),
        "clusters": lambda: sorted(map(repr, db.clusters())),
        "ids": lambda: db.keys_of(range(0, 3000, 7)),
    }
    for place, key in enumerate(keys[:: max(len(keys) // 150, 1)]):
        asked[f"get {place}"] = partial(db.get, key)
    for place, probe in enumerate(probes[::3]):
        for k in (0, db.k):
            asked[f"query {place} {k}"] = partial(db.query_fingerprint, probe, k=k)
    answers = {}
    for name, question in asked.items():
        try:
            found = question()
            answers[name] = list(found) if name.startswith("query") else found
        except fpdb.FpdbError as error:
            answers[name] = error
    return answers


def read(source: Source) -> dict[str, Any]:
    """Query a damaged database; return which answers are wrong, and whether some are errors."""
    try:
        with fpdb.open(source.path, readonly=True) as db:
            answers = ask(db, source.questions)
    except fpdb.FpdbError:
        return {"refused": True}
    failed = {name for name, answer in answers.items() if isinstance(answer, fpdb.FpdbError)}
    wrong = [name for name in answers.keys() - failed if answers[name] != source.answers[name]]
    return {"errors": bool(failed), "wrong": sorted(wrong)}


def damage(source: Source, spoilt: bytes) -> None:
    with (source.path / "data.mdb").open("r+b") as file:
        file.write(spoilt)
        file.truncate(len(spoilt))
    seal(source.path)  # a disk that fails changes no time
    (source.path / "lock.mdb").unlink(missing_ok=True)


def check_here(path: Path, *, deep: bool) -> int:
    """Check as the process of `fpdb.check` does, without starting another one."""
    try:
        return len(list(checking.read_problems(path, deep=deep)))
    except fpdb.FpdbError:  # it can't be opened, which `fpdb.check` raises as well
        return 1


def check(path: Path) -> list[str]:
    try:
        return said(fpdb.check(path, deep=True))
    except fpdb.FpdbError as error:
        return [f"{type(error).__name__}: {error}"]


def said(problems: Any) -> list[str]:
    return [f"{problem.where}: {problem.what}" for problem in problems]


class Mended(NamedTuple):
    """What a repair made of a damaged database, compared with what was there."""

    lost: set[Any]
    reduced: int  # documents with less than they had, or from before the last commit
    faults: list[str]
    reported: list[str]

    @property
    def undone(self) -> bool:
        """Whether the last commit is undone, wholly or in part: nobody can tell more."""
        return any("the last commit" in what for what in self.reported)


def repair(source: Source, new: Path) -> Mended | None:
    """Repair a damaged database; return None if that was refused."""
    try:
        repaired = fpdb.repair(source.path, new)
    except fpdb.FpdbError:
        return None
    with fpdb.open(new, readonly=True) as db:
        found = contents(db)
        faults = [f"the repaired one: {flaw}" for flaw in said(db.check())[:2]]
    mended = Mended(source.contents.keys() - found.keys(), 0, faults, said(repaired.problems))
    reduced = 0
    for key, value in found.items():
        before = source.before if mended.undone else {}
        states = [known[key] for known in (source.contents, before) if key in known]
        fingerprint, _, digest, meta, characters, *_ = value
        bare = not (digest or meta or characters)
        if value in states or (bare and fingerprint in [state[0] for state in states]):
            reduced += value != source.contents.get(key)
        else:
            faults.append(f"invented {key!r}: {value} for {states}"[:300])
    faults += [f"falsely lost: {key}" for key in repaired.lost if key in found]
    return mended._replace(reduced=reduced)


def run(figures: Figures, rounds: int, seed: int, work: Path, *, aimed: bool = False) -> None:
    """Damage databases, and see what becomes of it."""
    sources = [prepare(work, shape, seed) for shape in (AIMED_SHAPES if aimed else SHAPES)]
    kinds, dice = list(AIMED if aimed else SPOILS), random.Random(seed)
    figures.control = (_unbound if aimed else _blind)(work, seed)
    for number in going(rounds):
        source = sources[number % len(sources)]
        kind = kinds[number // len(sources) % len(kinds)]
        spoilt = spoil(source.whole, kind, dice, source.parts)
        damage(source, spoilt)
        answers, counts, faults = _read(source)
        if not aimed:
            faults += _mend(source, spoilt, work / "repaired", counts)
            shutil.rmtree(work / "repaired", ignore_errors=True)
        damage(source, source.whole)
        where = np.flatnonzero(changed(source.whole, spoilt))
        name = f"{number} {source.path.name}, {kind}, bytes {where[:1]} to {where[-1:]}"
        if wrong := answers.get("wrong"):
            asked = ", ".join({question.split()[0]: None for question in wrong})
            figures.notes.setdefault("wrong answers to", []).append(f"{name}: {asked}")
        figures.tally("in all", counts)
        figures.tally(kind, counts)
        figures.add(
            name, faults, lost=counts.get("intact documents lost", 0),
            acknowledged=counts.get("documents", 0),
        )  # fmt: skip
        figures.refused += counts["refused at opening"]
        for fault in faults:
            print(f"{name}: {fault}"[:600], flush=True)


def _read(source: Source) -> tuple[dict[str, Any], dict[str, int], list[str]]:
    """Query and check a damaged database; return the answers, their counts and what mustn't be."""
    found, died, error = apart(lambda: read(source))
    answers = found or {}
    plain = apart(lambda: check_here(source.path, deep=False))
    deep = check(source.path)
    wrong, noticed = answers.get("wrong", []), bool(plain.result or plain.died)
    counts = {
        "files": 1,
        "refused at opening": "refused" in answers,
        "reads died": bool(died),
        "wrong answers": bool(wrong),
        "wrong answers, and no read raises an error": bool(wrong) and not answers["errors"],
        "wrong answers that a plain check misses": bool(wrong) and not noticed,
        "noticed by a plain check": noticed,
        "noticed by a deep check": bool(deep),
        "harmless": not (deep or noticed or wrong or died or answers.get("errors", True)),
    }
    faults = [f"reads: {error}"] * bool(error) + [f"check: {plain.error}"] * bool(plain.error)
    if (wrong or died) and not deep:
        faults.append(f"unreported: {died or answers}"[:500])
    return answers, counts, faults


def _mend(source: Source, spoilt: bytes, new: Path, counts: dict[str, int]) -> list[str]:
    """Repair a damaged database; count what came back, and return what mustn't be."""
    safe = intact(source.parts.documents, source.whole, spoilt)
    counts |= {"documents": len(source.contents), "intact documents": len(safe)}
    mended, died, error = apart(lambda: repair(source, new))
    if died or error:
        return [f"repair: {died or error}"]
    if mended is None:
        counts |= {"repairs refused": 1, "intact documents refused": len(safe)}
        return []
    # Without the last commit, the state before is read instead, and a page of that is damaged, too.
    lost, faults = safe & mended.lost, mended.faults
    why = " with the last commit" * mended.undone
    counts |= {
        "repaired": 1,
        "repaired wholly": not mended.lost,
        f"intact documents lost{why}": len(lost),
        "documents reduced": mended.reduced,
        "documents invented": sum(each.startswith("invented") for each in faults),
    }
    if lost and not why:
        faults.append(f"{len(lost)} intact documents lost; {mended.reported[:20]}")
    if (mended.lost or mended.reduced) and not mended.reported:
        faults.append("a repair lost something, and didn't say so")
    return faults[:5]


# Known bad


@contextlib.contextmanager
def _checksum(own: Callable[[Any], int]) -> Iterator[None]:
    """Let checksums be those of the bytes alone, by a function."""
    with (
        mock.patch.object(kernels, "enabled", new=False),  # they compute their own
        mock.patch.object(number_pages, "_digest", lambda data, _: own(data)),
        mock.patch.object(text_pages, "_checksum", lambda value, _: own(value[4:])),
        mock.patch.object(
            layouts, "_record_checksum", lambda data, _: own(data).to_bytes(4, "big")
        ),
    ):
        yield


def _blind(work: Path, seed: int) -> str:
    """Let all checksums be equal: then a wrong answer goes unreported."""
    with _checksum(lambda _: 0):
        source = prepare(work / "blind", SHAPES[0], seed)
        ends = [ranges[-1] for ranges in source.parts.documents.values()]
        padded = [part for part in ends if _PADDING in source.whole[part.start : part.stop]]

        def change(data: bytearray, number: int) -> None:
            data[source.whole.index(_PADDING, padded[number].start)] ^= 1

        return _misled("with equal checksums", source, change)


def _unbound(work: Path, seed: int) -> str:
    """Exchange values whose checksums don't depend on their place: answers are wrong."""
    dice = random.Random(seed)
    with _checksum(lambda data: xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF):
        source = prepare(work / "unbound", AIMED_SHAPES[0], seed)
        return _misled(
            *("with unbound checksums", source),
            lambda data, _: values(data, dice, source.parts),
        )


def _misled(what: str, source: Source, change: Callable[[bytearray, int], None]) -> str:
    """Count the changed files that give wrong answers, and that a deep check finds faultless."""
    wrong = unreported = 0
    for number in range(_CONTROLS):
        spoilt = bytearray(source.whole)
        change(spoilt, number)
        damage(source, bytes(spoilt))
        misled = bool((apart(lambda: read(source)).result or {}).get("wrong"))
        wrong += misled
        unreported += misled and apart(lambda: check_here(source.path, deep=True)).result == 0
    if not wrong:
        raise ControlError(f"{what} no answer was wrong")
    return f"{what} {wrong} of {_CONTROLS} files answered wrongly, {unreported} of them unreported"
