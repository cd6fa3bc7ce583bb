"""Databases of format 2, made once and never again: what they held must come out as it went in.

`python tests/format/test_golden_databases.py` makes those that aren't there yet, for a format
or a kind of keys that is new. One that is there stays as it is: databases in the field are
not made anew either.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import lmdb
import pytest

import fpdb
from fpdb import Database, Document, Matches
from fpdb.errors import FormatError, FpdbError, IncompleteWarning
from fpdb.storage.format import unpack_header
from fpdb.tables import Bands
from fpdb.tables.plan import Plan, choose_plan, home_plan

# A copy that is opened for the first time is verified by a child process.
pytestmark = pytest.mark.process

HERE = Path(__file__).parent
CREATED = 1_750_000_000
UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

PAGE = "The library lends books for four weeks; whoever keeps them longer pays a small fee. "
NEAR = "The library lends books for four weeks; whoever keeps them longer pays a modest fee. "
CHINESE = "图书馆的书可以借四个星期，超过时间要付少量的费用。请按时归还图书，谢谢合作。"
TEXTS = [PAGE * 3, PAGE + NEAR + PAGE, CHINESE, "Nothing like the others: " + "wxyz klmn " * 5]
META = [None, {"title": "Books", "n": 1, "x": [1.5, None, True, -(2**63), 2**64 - 1]}, "文", []]
SHOWN = 20  # documents and answers of each kind, that are written out
BASE = 0x0123_4567_89AB_CDEF

QUERIES = [
    *TEXTS,
    NEAR * 3,
    "",
    "a b, c",
    "A b C!",
    "nothing that is stored anywhere in these databases",
]


def build_text(db: Database) -> None:
    """Text keys, 64 bits: texts, ready fingerprints, short texts, long keys."""
    for number, text in enumerate(TEXTS):
        db.add(f"https://example.org/{number}", text, META[number])
    list(db.add_many([Document("equal", TEXTS[0]), Document("词", "a b, c", {"s": 1})]))
    db.add("also short", "a b, c")
    db.add("empty", "")
    long = "https://example.org/" + "long/" * 120
    db.add_fingerprints([long + "1", long + "2"], [BASE, BASE ^ 1])
    documents = [Document(f"f{n}", meta=n, fingerprint=BASE ^ (1 << n) - 1) for n in range(6)]
    list(db.add_many(documents))
    db.add_fingerprints(["lowest", "highest", "gone"], [0, 2**64 - 1, 5])
    db.add("https://example.org/3", TEXTS[3] + "replaced", "replaced")
    db.delete("gone")


def build_integer(db: Database) -> None:
    """Integer keys, 128 bits: texts, ready fingerprints, short texts, both ends."""
    for number, text in enumerate(TEXTS):
        db.add(number, text, META[number])
    list(db.add_many([Document(10, TEXTS[0]), Document(11, "a b, c", {"s": 1}), Document(12, "")]))
    high = BASE << 64
    db.add_fingerprints([2**32, 2**63, 2**64 - 1], [high, high ^ 1, high | 1 << 63])
    documents = [Document(20 + n, fingerprint=high ^ (1 << 11 * n)) for n in range(6)]
    list(db.add_many(documents))
    db.add_fingerprints([100, 101, 102], [0, 2**128 - 1, 5])
    db.add(3, TEXTS[3] + "replaced", "replaced")
    db.delete(102)


def build_bare(db: Database) -> None:
    """Integer keys, 64 bits: more than one page of ready fingerprints in each table."""
    step = 0x9E37_79B9_7F4A_7C15
    db.add_fingerprints(range(0, 5400, 9), [(n + 1) * step % 2**64 for n in range(600)])
    list(db.add_many([Document(7, fingerprint=BASE), Document(8, TEXTS[0], {"n": 8})]))
    changed = [Document(2**64 - 1, fingerprint=BASE ^ 7), Document(900, fingerprint=5)]
    list(db.add_many(changed))
    assert db.delete_many([0, 9, 1]) == 2


def build_narrow(db: Database) -> None:
    """Text keys, 32 bits, a plan of the home table alone."""
    db.add_fingerprints(["a", "b", "c"], [0x89AB_CDEF, 0x89AB_CDEE, 0])
    db.add("d", TEXTS[1], {"narrow": True})
    db.add("e", "a b, c")
    assert db.delete("c")


def build_similar(db: Database) -> None:
    """Text keys, 64 bits, bands of sketches: of texts, of none, of the replaced and deleted."""
    for number, text in enumerate(TEXTS):
        db.add(f"https://example.org/{number}", text, META[number])
    list(db.add_many([Document("near", TEXTS[0] + NEAR), Document("short", "a b, c")]))
    db.add_fingerprints(["bare", "gone"], [BASE, 5])
    db.add("https://example.org/3", TEXTS[3] + "replaced", "replaced")
    db.add("deleted", NEAR * 3)
    db.delete_many(["gone", "deleted"])


def build_crowded(db: Database) -> None:
    """Integer keys, 128 bits, one band of one bin: more than one page, and runs over a page."""
    for number, text in enumerate(TEXTS):
        db.add(number, text, META[number])
    first = 2**50
    list(db.add_many(Document(first + n, f"{PAGE} {n} {n % 9} {NEAR}") for n in range(70)))
    list(db.add_many([Document(200, "a b, c"), Document(201, fingerprint=BASE)]))
    assert db.delete_many(range(first, first + 10)) == 10


def build_passages(db: Database) -> None:
    """Integer keys, 64 bits, numbers of passages: of texts, of none, and with nothing else."""
    for number, text in enumerate(TEXTS):
        db.add(number, text * 3, META[number])
    list(db.add_many([Document(10, "a b, c"), Document(11, fingerprint=BASE, passages=b"12345")]))
    db.add(3, TEXTS[0] + TEXTS[3] * 2, "replaced")


def build_groups(db: Database) -> None:
    """Text keys, groups: of a keeper that is gone, a replaced one, short texts, one alone."""
    for number, text in enumerate(TEXTS):
        db.add(f"https://example.org/{number}", text * 3, META[number])
    for number in range(4):
        db.add(f"copy {number}", TEXTS[0] * 3 + NEAR * (number % 2))
    list(db.add_many(Document(f"short {number}", "a b, c") for number in range(3)))
    db.add_fingerprints(["bare"], [BASE])
    db.add("https://example.org/2", CHINESE * 3 + TEXTS[3], "replaced")
    db.delete_many(["https://example.org/0", "short 0"])  # the others aren't checked yet


class Golden(NamedTuple):
    """What a golden database is made of."""

    keys: str
    plan: Plan
    fill: Callable[[Database], None]
    similarity: float | None = None
    passages: bool = False
    groups: bool = False


BUILDERS = {
    "text": Golden("text", choose_plan(64, 3), build_text),
    "integer": Golden("integer", choose_plan(128, 3), build_integer),
    "bare": Golden("integer", choose_plan(64, 3), build_bare),
    "narrow": Golden("text", home_plan(32, 1, 8), build_narrow),
    "similar": Golden("text", replace(choose_plan(64, 3), bands=Bands(6, 8)), build_similar, 0.8),
    "crowded": Golden(
        "integer", replace(choose_plan(128, 3), bands=Bands(14, 1)), build_crowded, 0.7
    ),
    "passages": Golden(
        "integer", replace(choose_plan(64, 3), bands=Bands(6, 8)), build_passages, 0.8, True
    ),
    "groups": Golden(
        "text", replace(choose_plan(64, 3), bands=Bands(6, 8)), build_groups, 0.8, groups=True
    ),
}
NEVER = (
    "Format 1 must stay readable for ever: the databases of all users are written in it. "
    "Undo the change, or give what is new a version, or a feature, of its own."
)


def build(path: Path, name: str) -> None:
    """Make a database whose time and uuid are always the same."""
    keys, plan, fill, similarity, passages, groups = BUILDERS[name]
    recipe = fpdb.recipe("char-4").with_bits(plan.bits)
    wanted: dict[str, Any] = {"recipe": recipe, "k": plan.k, "keys": keys, "plan": plan}
    with (
        mock.patch.object(time, "time", return_value=CREATED + 0.5),
        mock.patch.object(uuid, "uuid4", return_value=UUID),
        fpdb.create(
            path,
            **wanted,
            capacity=1000,
            similarity=similarity,
            passages=passages,
            groups=groups,
        ) as db,
    ):
        fill(db)


def answers_of(path: Path) -> str:
    """Everything that the database says, as text."""
    with fpdb.open(path, readonly=True) as db:
        stats = db.stats()
        numbers = [document.fingerprint for document in db.scan()]
        asked = sorted({number for number in numbers if number is not None})
        if len(asked) > 40:
            asked = sorted(asked, key=lambda number: (number ^ BASE).bit_count())[:5] + asked[::40]
        answers: dict[str, Any] = {
            "header": {
                "uuid": stats.uuid,
                "created": stats.created,
                "recipe": [stats.recipe, stats.recipe_id],
                "bits, k": [stats.bits, stats.k],
                "keys": stats.keys,
                "plan": db.plan.to_dict(),
                "capacity": stats.capacity,
                "documents, short": [stats.documents, stats.short],
            },
            "documents": [
                [
                    d.key,
                    d.id,
                    f"{d.fingerprint:x}" if d.fingerprint is not None else None,
                    d.added,
                    d.meta,
                ]
                for d in map(db.__getitem__, db)
            ],
            "texts": [[text, _shown(db.query(text, k=db.k))] for text in QUERIES],
            "fingerprints": [
                [f"{number:x}", k, _shown(db.query_fingerprint(number, k=k))]
                for number in asked
                for k in (0, 3, 5)
            ],
        }
        if db.similarity:
            answers["sketches"] = [[d.key, d.sketch and d.sketch.hex()] for d in db.scan()]
            with warnings.catch_warnings(action="ignore", category=IncompleteWarning):
                answers["similar"] = [
                    [text, [[m.key, round(m.similarity or 0, 6)] for m in found]]
                    for text in QUERIES
                    for found in [db.query(text, similarity=0.3)]
                ]
        if db.has_groups:
            answers["groups"] = [[d.key, d.group, db.group(d.key).members] for d in db.scan()]
        if passages := [[d.key, d.passages.hex()] for d in db.scan() if d.passages]:
            answers["passages"] = passages
    return written(answers)


def written(answers: dict[str, Any]) -> str:
    """Answers as JSON with an item on each line: the longest of each kind, and a digest of all."""
    lines, digests = [], {}
    for part, items in answers.items():
        if isinstance(items, dict):
            lines.append(f'"{part}": {json.dumps(items, ensure_ascii=False)}')
            continue
        plain = [json.dumps(item, ensure_ascii=False) for item in items]
        digests[part] = [len(plain), hashlib.sha256("\n".join(plain).encode()).hexdigest()]
        longest = {*sorted(plain, key=len)[-SHOWN:]}
        shown = ",\n  ".join(item for item in plain if item in longest)
        lines.append(f'"{part}": [\n  {shown}\n]')
    lines.append(f'"digests": {json.dumps(digests)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _shown(matches: Matches) -> list[list[Any]]:
    assert matches.complete
    return [[match.key, match.id, match.distance] for match in matches]


def entries_of(path: Path) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """What the sub-databases hold, byte by byte."""
    with lmdb.open(str(path), max_dbs=64, lib_version=0) as raw, raw.begin() as txn:
        names = [bytes(key) for key, _ in txn.cursor()]
        databases = {name: raw.open_db(name, txn=txn, create=False) for name in names}
        return {name: list(txn.cursor(own)) for name, own in databases.items()}


@pytest.fixture(params=BUILDERS, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def golden(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a golden database, which the first test that opens it verifies."""
    path = tmp_path_factory.mktemp("golden") / name
    path.mkdir(mode=0o700)
    shutil.copyfile(HERE / f"format-2-{name}" / "data.mdb", path / "data.mdb")
    (path / "data.mdb").chmod(0o600)
    return path


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Whatever fpdb refuses in a golden database is a failure that says why it matters."""
    try:
        yield
    except FpdbError as error:
        pytest.fail(f"{NEVER}\n{type(error).__name__}: {error}")


def test_a_golden_database_answers_as_it_ever_did(golden: Path, name: str) -> None:
    with readable():
        answers = json.loads(answers_of(golden))
    then = json.loads((HERE / f"format-2-{name}.json").read_text("utf-8"))
    for part in then:
        assert answers[part] == then[part], NEVER


def test_a_golden_database_is_sound(golden: Path) -> None:
    with readable(), fpdb.open(golden) as db:
        assert list(db.check()) == [], NEVER


def test_a_golden_database_can_be_written(golden: Path, name: str, tmp_path: Path) -> None:
    with fpdb.open(golden) as db:
        db.backup(tmp_path / "copy")
    stored, again = TEXTS[1] + " and all that is new", TEXTS[1] + " and all that is new"
    with readable(), fpdb.open(tmp_path / "copy") as db:
        before = list(db.scan())
        own: Any = "new" if BUILDERS[name].keys == "text" else 77
        assert db.add(own, stored, {"new": True}).status == "added", NEVER
        other: Any = "other" if BUILDERS[name].keys == "text" else 78
        skipped = db.add(other, again, skip_duplicates=True)
        assert skipped.status == "duplicate", NEVER
        assert own in [match.key for match in skipped.matches], NEVER
        assert own in [match.key for match in db.query(stored)], NEVER
        assert own in [match.key for match in db.query(stored, k=0)], NEVER
        assert list(db.check()) == [], NEVER
        assert db.delete(own), NEVER
        assert list(db.scan()) == before, NEVER
        assert db.delete_many(list(db)) == len(before), NEVER
        assert list(db.check()) == [], NEVER


def test_a_golden_database_goes_back_by_its_export(golden: Path, tmp_path: Path) -> None:
    with readable(), fpdb.open(golden) as db, (tmp_path / "export").open("wb") as file:
        db.dump(file)
        before = [replace(document, id=None) for document in db.scan()]
    with (tmp_path / "export").open("rb") as file:
        fpdb.load(tmp_path / "older", file)
    with fpdb.open(tmp_path / "older") as db:
        after = [replace(document, id=None) for document in db.scan()]
        assert sorted(after, key=str) == sorted(before, key=str), NEVER


def test_what_is_written_today_has_the_bytes_of_then(
    golden: Path, name: str, tmp_path: Path
) -> None:
    build(tmp_path / "today", name)
    assert answers_of(tmp_path / "today") == answers_of(golden)
    today, then = entries_of(tmp_path / "today"), entries_of(golden)
    assert list(today) == list(then)
    # The fields of the header may come in any order.
    headers = [dict(entries[b"header"]).pop(b"header") for entries in (today, then)]
    assert unpack_header(headers[0]) == unpack_header(headers[1])
    for own, entries in then.items():
        expected = dict(entries)
        if own == b"header":
            expected[b"header"] = headers[0]
        assert dict(today[own]) == expected, own


def later(path: Path) -> None:
    """A database of a later format: of its header, only the first bytes are as they are today."""
    draft = path.with_name("draft")
    build(draft, "narrow")
    with fpdb.open(draft) as db, db._environment.write() as txn:
        txn.put("header", b"header", b"fpdb\3\0\3\0 and what only later versions know")
        txn.put("counters", b"counters", b"of another kind")
    path.mkdir(mode=0o700)
    with lmdb.open(str(draft), lib_version=0) as raw:
        raw.copy(str(path), compact=True)  # without the header that was there before
    shutil.rmtree(draft)


def first(path: Path) -> None:
    """A database of the first format, which was never released."""
    path.mkdir(mode=0o700)
    shutil.copyfile(HERE / "format-1-narrow" / "data.mdb", path / "data.mdb")


@pytest.mark.parametrize(("make", "version"), [(first, 1), (later, 3)])
def test_another_format_is_named_and_never_called_damage(
    make: Callable[[Path], None], version: int, tmp_path: Path
) -> None:
    path = tmp_path / "other"
    make(path)
    before = (path / "data.mdb").read_bytes()
    uses: list[Callable[[], object]] = [
        lambda: fpdb.open(path),
        lambda: fpdb.open(path, readonly=True),
        lambda: list(fpdb.check(path)),
        lambda: list(fpdb.check(path, deep=True)),
        lambda: fpdb.repair(path, tmp_path / "repaired"),
        lambda: fpdb.load(tmp_path / "copied", path),
    ]
    for use in uses:
        with pytest.raises(FormatError, match=f"format version {version}, this fpdb reads 2") as e:
            use()
        assert "export it with the fpdb that made it, and load that" in e.value.hint
    assert (path / "data.mdb").read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"other"}


def main() -> None:
    """Make the golden databases that aren't there."""
    for name in BUILDERS:
        target = HERE / f"format-2-{name}"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder) / "db", name)
            (Path(folder) / "golden").mkdir()
            with lmdb.open(str(Path(folder) / "db"), lib_version=0) as raw:
                raw.copy(str(Path(folder) / "golden"), compact=True)
            target.mkdir()
            shutil.copyfile(Path(folder) / "golden" / "data.mdb", target / "data.mdb")
            answers = answers_of(Path(folder) / "db")
        target.with_suffix(".json").write_text(answers, "utf-8")


if __name__ == "__main__":
    main()
