"""Damaged data files: what is read from them, what a check says of them, what a repair saves."""

import collections
import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from figures import ControlError, Figures
from spoil import SPOILS, Parts, intact, parts, spoil

import fpdb
from fpdb import Document, kernels
from fpdb.maintenance import check as checking
from fpdb.storage import format as layouts
from fpdb.storage import number_pages
from fpdb.tables.plan import choose_plan

ROUNDS = 2000
_SECONDS = 60
_PROBES = 90
_CONTROLS = 6
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


def missing() -> str:
    """Return what this torment lacks here."""
    return ""


# Databases


TINY = fpdb.Recipe("tiny", clean=(), segment="whitespace", grams=fpdb.Grams(minimum=3))


class Shape(NamedTuple):
    """What a database is like."""

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


Contents = dict[Any, tuple[Any, ...]]


def create(work: Path, shape: Shape, seed: int) -> tuple[Path, Contents]:
    """Make a database with a history: loaded, added, replaced, deleted, big and short ones.

    Give its path, and what it held before the last commit.
    """
    dice = random.Random(f"{shape.name} {seed}")
    path = work / shape.name.replace(" ", "-")
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
    assert not [name for name, answer in answers.items() if isinstance(answer, Error)]
    whole = (path / "data.mdb").read_bytes()
    return Source(path, whole, parts(path), known, before, answers, questions)


# Reads


class Error(str):
    """The name of an error of fpdb that came instead of an answer."""


def ask(db: fpdb.Database, questions: dict[str, Any]) -> dict[str, Any]:
    """Ask a database every kind of question, each by itself."""
    probes, keys = questions["probes"], questions["keys"]

    def hits() -> Any:
        found = db.query_fingerprints(probes)
        return [part.tolist() for part in found]

    some = keys[:: max(len(keys) // 150, 1)]
    asked: dict[str, Callable[[], Any]] = {
        "len": lambda: len(db),
        "scan": lambda: list(db.scan()),
        "keys": lambda: list(db),
        "hits": hits,
        "text": lambda: [list(db.query(text)) for text in ("w1 w2 w3 w4 w5", "w1 w2", "")],
        "pairs": lambda: sorted(map(repr, db.pairs())),
        "pairs of bits": lambda: sorted(map(repr, db.pairs(k=db.k))),
        "clusters": lambda: sorted(map(repr, db.clusters())),
        "ids": lambda: db.keys_of(range(0, 3000, 7)),
    }
    for place, key in enumerate(some):
        asked[f"get {place}"] = lambda key=key: db.get(key)  # type: ignore[misc]
    for place, probe in enumerate(probes[::3]):
        for k in (0, db.k):
            asked[f"query {place} {k}"] = lambda probe=probe, k=k: list(  # type: ignore[misc]
                db.query_fingerprint(probe, k=k)
            )
    return {name: _answer(question) for name, question in asked.items()}


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except fpdb.FpdbError as error:
        return Error(type(error).__name__)


def read(source: Source) -> dict[str, Any]:
    """Query a damaged database; return which answers are wrong, and which are errors."""
    try:
        with fpdb.open(source.path, readonly=True) as db:
            answers = ask(db, source.questions)
    except fpdb.FpdbError as error:
        return {"opening": type(error).__name__}
    errors = {str(answer) for answer in answers.values() if isinstance(answer, Error)}
    wrong = [
        name
        for name, answer in answers.items()
        if not isinstance(answer, Error) and answer != source.answers[name]
    ]
    return {"errors": sorted(errors), "wrong": wrong}


# Processes


def apart(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something in a forked process; say what it gave, or how it died."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        with contextlib.suppress(BaseException):
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(_SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                result = work()
            except BaseException as error:
                import traceback

                where = traceback.extract_tb(error.__traceback__)[-1]
                result = {"bare": f"{type(error).__name__}: {error} ({where.name})"}
            with os.fdopen(send, "w") as file:
                json.dump(result, file, default=str)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as file:
        output = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"died": signal.Signals(os.WTERMSIG(status)).name}
    return json.loads(output) if output else {"bare": "it printed nothing"}


def check_here(path: Path, *, deep: bool) -> dict[str, Any]:
    """Check as the process of `fpdb.check` does, without starting another one."""
    try:
        return {"problems": len(list(checking.read_problems(path, deep=deep)))}
    except fpdb.FpdbError as error:  # it can't be opened, which `fpdb.check` raises as well
        return {"problems": 1, "refused": type(error).__name__}


def check(path: Path) -> list[str]:
    """Check as a user does; this very process must live."""
    try:
        return [f"{problem.where}: {problem.what}" for problem in fpdb.check(path, deep=True)]
    except fpdb.FpdbError as error:
        return [f"{type(error).__name__}: {error}"]


def repair(source: Source, new: Path) -> dict[str, Any]:
    """Repair a damaged database; compare what came back with what was there."""
    try:
        repaired = fpdb.repair(source.path, new)
    except fpdb.FpdbError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    with fpdb.open(new, readonly=True) as db:
        found = contents(db)
        flaws = [f"{problem.where}: {problem.what}" for problem in db.check()]
    reported = [f"{problem.where}: {problem.what}" for problem in repaired.problems]
    # Nobody can tell more than that the last commit is undone, wholly or in part.
    undone = any("the last commit" in what for what in reported)
    invented, stripped, undated, older = [], 0, 0, 0
    for key, value in found.items():
        true = source.contents.get(key)
        if value == true:
            continue
        old = source.before.get(key) if undone else None
        fingerprint, _, digest, meta, characters, *_ = value
        bare = not (digest or meta or characters)
        if true and fingerprint == true[0] and bare:
            stripped += value[2:] != true[2:]
            undated += value[2:] == true[2:]
        elif old and (value == old or (bare and fingerprint == old[0])):
            older += 1
        else:
            invented.append(f"{key!r}: {value} for {true}"[:300])
    lost = [key for key in source.contents if key not in found]
    silent = bool(lost or stripped or undated) and not reported
    return {
        "found": len(found),
        "lost": lost,
        "named": len(repaired.lost),
        "missing": repaired.missing,
        "invented": invented,
        "stripped": stripped,
        "undated": undated,
        "older": older,
        "flaws": flaws,
        "silent": silent,
        "reported": sorted(
            reported, key=lambda what: what.split(":")[0] not in {"free pages", "data.mdb"}
        )[:20],
        "falsely lost": [key for key in repaired.lost if key in found][:5],
    }


# Rounds


def damage(source: Source, spoilt: bytes) -> None:
    """Change the file where it lies."""
    with (source.path / "data.mdb").open("r+b") as file:
        file.write(spoilt)
        file.truncate(len(spoilt))
    (source.path / "lock.mdb").unlink(missing_ok=True)


def run(rounds: int, seed: int, work: Path, shapes: list[Shape] | None = None) -> Figures:
    """Damage databases, and see what becomes of it."""
    sources = [prepare(work, shape, seed) for shape in shapes or SHAPES]
    dice, new = random.Random(seed), work / "repaired"
    control = _control(sources[0])
    tally: collections.Counter[str] = collections.Counter()
    by_kind: dict[str, collections.Counter[str]] = {k: collections.Counter() for k in SPOILS}
    bad: list[str] = []
    misled: list[str] = []
    for number in range(rounds):
        source = sources[number % len(sources)]
        kind = list(SPOILS)[number // len(sources) % len(SPOILS)]
        spoilt, changes = spoil(source.whole, kind, dice, source.parts)
        damage(source, spoilt)
        answers = apart(lambda source=source: read(source))  # type: ignore[misc]
        plain = apart(lambda source=source: check_here(source.path, deep=False))  # type: ignore[misc]
        deep = check(source.path)
        mended = apart(lambda source=source: repair(source, new))  # type: ignore[misc]
        safe = intact(source.parts.documents, source.whole, spoilt)
        seen = Outcome(answers, plain, deep, mended, safe)
        faults = _judge(source, seen, (tally, by_kind[kind]))
        if wrong := answers.get("wrong"):
            asked = ", ".join(sorted({name.split()[0] for name in wrong}))
            misled.append(f"{number} {source.path.name}, {kind}, {changes}: {asked}")
        bad += [f"{number} {source.path.name}, {kind}, {changes}: {fault}" for fault in faults]
        for fault in faults:
            print(f"{number} {source.path.name}, {kind}, {changes}: {fault}"[:600], flush=True)
        shutil.rmtree(new, ignore_errors=True)
        damage(source, source.whole)
    notes: dict[str, object] = {"in all": dict(sorted(tally.items()))}
    notes |= {kind: dict(sorted(counts.items())) for kind, counts in by_kind.items()}
    return Figures(
        rounds,
        tally["documents"],
        tally["intact documents lost"],
        len(bad),
        tally["refused at opening"],
        control,
        {**notes, "wrong answers to": misled, "bad": bad[:20]},
    )


class Outcome(NamedTuple):
    """What was seen of one damaged file."""

    answers: dict[str, Any]
    plain: dict[str, Any]
    deep: list[str]
    mended: dict[str, Any]
    intact: set[Any]


def _judge(source: Source, seen: Outcome, tallies: Sequence[collections.Counter[str]]) -> list[str]:
    """Count what was seen of a damaged file, and give what mustn't be."""
    answers, plain, deep, mended, safe = seen
    faults = []
    wrong = answers.get("wrong", [])
    noticed = bool(plain.get("problems") or plain.get("died"))
    counts = {
        "files": 1,
        "refused at opening": "opening" in answers,
        "reads died": "died" in answers,
        "errors in reads": bool(answers.get("errors")),
        "wrong answers": bool(wrong),
        "wrong answers, and no read raises an error": bool(wrong) and not answers["errors"],
        "noticed by a plain check": noticed,
        "noticed by a deep check": bool(deep),
        "noticed by nothing but a deep check": bool(
            deep and not noticed and answers in ({"errors": [], "wrong": []},)
        ),
        "harmless": not deep and not noticed and answers == {"errors": [], "wrong": []},
        "wrong answers that a plain check misses": bool(wrong) and not noticed,
        "documents": len(source.contents),
        "intact documents": len(safe),
    }
    if "bare" in answers:
        faults.append(f"reads: {answers['bare']}")
    if "bare" in plain:
        faults.append(f"check: {plain['bare']}")
    if (wrong or "died" in answers) and not deep:
        faults.append(f"unreported: {answers}")
    if "refused" in mended:
        counts["repairs refused"] = 1
        counts["intact documents refused"] = len(safe)
    elif "found" not in mended:
        faults.append(f"repair: {mended}")
    else:
        lost = safe & set(mended["lost"])
        if any(what.startswith("free pages") for what in mended["reported"]):
            counts["intact documents lost with the list of free pages"] = len(lost)
            lost = set()
        elif any("the last commit" in what for what in mended["reported"]):
            # The state before is read instead, and a page of that is damaged, too.
            counts["intact documents lost with the last commit"] = len(lost)
            lost = set()
        counts |= {
            "repaired": 1,
            "repaired wholly": not mended["lost"],
            "documents salvaged": mended["found"],
            "intact documents lost": len(lost),
            "documents invented": len(mended["invented"]),
            "documents stripped of text and metadata": mended["stripped"],
            "documents with another time": mended["undated"],
            "documents of the last commit undone": mended["older"],
        }
        if lost:
            faults.append(f"{len(lost)} intact documents lost; {mended['reported']}")
        faults += [f"invented {one}; {mended['reported']}" for one in mended["invented"][:2]]
        faults += [f"the repaired one: {flaw}" for flaw in mended["flaws"][:2]]
        faults += [f"falsely lost: {key}" for key in mended["falsely lost"][:1]]
        if mended["silent"]:
            faults.append("a repair lost something, and didn't say so")
    for tally in tallies:
        tally.update({name: int(count) for name, count in counts.items() if count})
    return faults


# Known bad


class _Anything:
    """Equal to everything, as no checksum should be."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    def __and__(self, _: object) -> "_Anything":
        return self


def _without_checksums(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    nothing: Any = _Anything()
    layouts._record_checksum = number_pages._digest = lambda *_: nothing
    kernels.enabled = False  # which compare checksums by themselves
    return work()


def _control(source: Source) -> str:
    """Switch the checksums of pages and records off: then a wrong answer goes unreported."""
    ends = [ranges[-1] for ranges in source.parts.documents.values()]
    padded = [part for part in ends if _PADDING in source.whole[part.start : part.stop]]
    blind = 0
    for part in padded[:_CONTROLS]:
        spoilt = bytearray(source.whole)
        spoilt[source.whole.index(_PADDING, part.start)] ^= 1
        damage(source, bytes(spoilt))
        answers = apart(lambda: _without_checksums(lambda: read(source)))
        found = apart(lambda: _without_checksums(lambda: check_here(source.path, deep=True)))
        blind += bool(answers.get("wrong")) and found.get("problems") == 0
        damage(source, source.whole)
    if not blind:
        raise ControlError("without checksums no wrong answer went unreported")
    return f"without checksums wrong answers of {blind} in {_CONTROLS} files went unreported"
