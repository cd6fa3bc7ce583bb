"""Every command on every kind of database: no traceback, and no wrong zero.

A command that can't answer on a kind of database says so, with a hint. A new command needs a row
here; the row of a command that has gone is to go with it.
"""

import json
import random
from dataclasses import dataclass

import pytest

import fpdb
from fpdb.cli.app import program

DICE = random.Random(11)
ENDS = ["ben", "dor", "fal", "gim"]
WORDS = [start + end for start in ("ka", "lo", "mi", "tu", "se", "ra") for end in ENDS]
TEXTS = [" ".join(DICE.choices(WORDS, k=60)) for _ in range(4)]
DOCUMENTS = [TEXTS[place] for place in (0, 0, 0, 1, 1, 2, 3)] + ["brief note"]
PRINTS = [5 << 20, 5 << 20, 5 << 20, 2**31 - 1, 2**31 - 1, 0xF0F0F0F0, 0x00FF00FF]
# Documents 1 to 3 are copies, and so are 4 and 5; no two others are near each other.
PAIRS = [("1", "2"), ("1", "3"), ("2", "3"), ("4", "5")]
NEW = {"key": "100", "text": " ".join(f"{word}x" for word in reversed(TEXTS[2].split()))}
NEW_COPY = NEW["text"].encode()
FIELDS = ["--key-field", "1", "--fingerprint-field", "2"]


@dataclass(frozen=True)
class Kind:
    """A kind of database: how it is created, and the contents that it has then."""

    options: tuple[str, ...]
    documents: int = 8
    short: int = 1
    sketches: int | None = None
    texts: bool = True  # or else ready fingerprints
    passages: bool = False

    @property
    def pairs(self):
        return PAIRS if self.documents else []

    @property
    def similar(self):
        """The pairs by the measure of the database; without sketches, documents have none."""
        return [] if self.sketches == 0 else self.pairs


BITS = {"documents": 7, "short": 0, "texts": False}
KINDS = {
    "similarity": Kind(("create",), sketches=7),
    "bits": Kind(("create", "--recipe", "words")),
    "similarity off": Kind(("create", "--similarity", "off")),
    "32 bits": Kind(("create", "--recipe", "bigram-32"), short=0),
    "128 bits": Kind(("create", "--recipe", "charikar"), short=0),
    "integer keys": Kind(("create", "--key-type", "integer"), sketches=7),
    "integer keys, bits": Kind(("create", "--key-type", "integer", "--recipe", "words")),
    "passages": Kind(("create", "--passages"), sketches=7, passages=True),
    "foreign bits": Kind(("load",), **BITS),
    "foreign bits, integer keys": Kind(("load", "--key-type", "integer"), **BITS),
    "fingerprints without texts": Kind(("create",), **BITS | {"sketches": 0}),
    "empty": Kind(("create",), documents=0, short=0, sketches=0),
}


@dataclass
class Case:
    """A copy of a database of a kind, and a folder for what commands write."""

    kind: Kind
    path: object
    folder: object
    command: object
    json: bool

    def __call__(self, name, *arguments, stdin=b""):
        """Run a command; whatever it says must be sound."""
        printed = self.json and any(
            each.name == "as_json" for each in program().commands[name].params
        )
        done = self.command(name, *arguments, *["--json"] * printed, stdin=stdin)
        assert done.code in (0, 1, 2, 3, 4)
        assert "Traceback" not in done.err
        if done.code == 3:
            assert "error: " in done.err
            assert "hint: " in done.err
        if done.code == 2:
            assert "Usage: " in done.err
        if printed and done.code == 0:
            assert all(json.loads(line) is not None for line in done.out.splitlines())
        return done

    def keys(self, done):
        """The keys that a command printed: the first field, or that of objects, as texts."""
        if done.out.startswith("{"):
            return [str(json.loads(line)["key"]) for line in done.out.splitlines()]
        return [row[0] for row in done.rows]

    def pairs(self, done):
        """The pairs that a command printed, sorted."""
        if self.json:
            rows = map(json.loads, done.out.splitlines())
            return sorted((str(row["key"]), str(row["other"])) for row in rows)
        return sorted((row[0], row[1]) for row in done.rows)

    def matches(self, done):
        """The keys of the matches of one query."""
        if self.json:
            [answer] = map(json.loads, done.out.splitlines())
            assert answer["complete"] is True
            return [str(match["key"]) for match in answer["matches"]]
        return [row[1] for row in done.rows]

    def expect(self, documents, path=None):
        """Check that there are as many documents, that all are sound, and that all are listed."""
        path = path or self.path
        found = fpdb.describe(path)
        assert found.documents == documents
        with fpdb.open(path, readonly=True) as database:
            assert list(database.check()) == []
            assert len(list(database)) == len(database) == documents

    def refused(self, *arguments, because, **options):
        """Run a command that can't do what is wanted on this kind, and says why."""
        done = self(*arguments, **options)
        assert (done.code, done.out, because in done.err) == (3, "", True)

    @property
    def print_of_first(self):
        with fpdb.open(self.path, readonly=True) as database:
            [key] = [key for key in database if str(key) == "1"] or [None]
            number = 0 if key is None else database[key].fingerprint
            return fpdb.format_fingerprint(number, database.recipe.bits)


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    """A database of each kind, with its documents."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "texts.jsonl").write_text(
        "".join(
            json.dumps({"key": key, "text": text}) + "\n" for key, text in enumerate(DOCUMENTS, 1)
        )
    )
    (folder / "prints.tsv").write_text(
        "".join(f"{key}\t{number:x}\n" for key, number in enumerate(PRINTS, 1))
    )
    return folder


@pytest.fixture
def case(request, run, databases, tmp_path):
    name, printed = request.param
    kind, made = KINDS[name], databases / name
    if not made.exists():
        first, *options = kind.options
        if first == "create":
            assert run("create", made, *options, "-q").code == 0
        if kind.documents and kind.texts:
            assert run("ingest", made, databases / "texts.jsonl", "-q").code == 0
        elif kind.documents:
            more = options if first == "load" else []
            assert run("load", made, databases / "prints.tsv", *FIELDS, *more, "-q").code == 0
    with fpdb.open(made, readonly=True) as database:  # any other copy would be verified first
        database.backup(tmp_path / "db")
    return Case(kind, tmp_path / "db", tmp_path, run, printed)


ROWS = {}


def row(function):
    ROWS[function.__name__.removesuffix("_")] = function
    return function


@row
def ingest(case):
    new = json.dumps(NEW).encode() + b"\n"
    if not case.kind.texts and case.kind.sketches is None:
        done = case("ingest", case.path, "-", stdin=new)
        assert (done.code, "without a recipe" in done.err) == (3, True)
        return
    copies = b"".join(b'{"key": "%d", "text": "%s"}\n' % (key, NEW_COPY) for key in (101, 102))
    done = case("ingest", case.path, "-", "--skip-duplicates", stdin=new + copies)
    assert (done.code, case.keys(done)) == (0, ["101", "102"])
    assert "read 3, added 1, duplicates 2 (66.7%); " in done.err
    case.expect(case.kind.documents + 1)


@row
def query(case):
    digits, bits = case.print_of_first, fpdb.describe(case.path).bits
    copies = ["1", "2", "3"] if case.kind.documents else []
    asked = ["query", case.path, "--fingerprint", digits]
    assert case.matches(case(*asked, "-k", 0)) == copies
    nearest = case(*asked, "--nearest", 2)
    assert case.matches(nearest) == copies[:2]
    assert all(cells[2:] == ["0", "100.00"] for cells in nearest.rows) or case.json
    with_bits = case.kind.documents - case.kind.short
    for k in (bits // 2 + 10, bits):
        done = case(*asked, "-k", k)
        assert (done.code, len(case.matches(done))) == (0, with_bits)
    assert case(*asked, "-k", bits + 1).code == 3
    if not case.kind.texts and case.kind.sketches is None:
        case.refused("query", case.path, "--text", TEXTS[0], because="without a recipe")
    else:
        found = case.matches(case("query", case.path, "--text", TEXTS[0]))
        assert found == (copies if case.kind.texts else [])
        nearest = case("query", case.path, "--text", TEXTS[0], "--nearest", 100)
        assert len(case.matches(nearest)) == with_bits
    shared = ["query", case.path, "--text", TEXTS[0], "--passages"]
    if case.kind.passages:
        assert case.matches(case(*shared)) == copies
    else:
        case.refused(*shared, because="keeps no passages")


@row
def dedupe(case):
    texts, clean = case.folder / "more.jsonl", case.folder / "clean.jsonl"
    records = [NEW, {"key": "101", "text": TEXTS[0]}]
    texts.write_text("".join(json.dumps(record) + "\n" for record in records))
    asked = ["dedupe", texts, "--db", case.path, "-o", clean]
    if fpdb.describe(case.path).keys == "integer":
        case.refused(*asked, because="has integer keys")
        return
    if not case.kind.texts and case.kind.sketches is None:
        case.refused(*asked, because="without a recipe")
        return
    done = case(*asked)
    kept = 1 if case.kind.texts and case.kind.documents else 2
    assert done.code == 0
    if case.json:
        assert json.loads(done.out)["kept"] == kept
    else:
        assert f"read 2, kept {kept}" in done.err
    assert len(clean.read_text().splitlines()) == kept
    case.expect(case.kind.documents + kept)


@row
def pairs(case):
    done = case("pairs", case.path)
    assert (done.code, case.pairs(done)) == (0, case.kind.similar)
    assert f"pairs {len(case.kind.similar)}; " in done.err
    lacking = 7 if case.kind.sketches == 0 and case.kind.documents else 0
    assert (f"documents without a sketch, which only -k compares: {lacking}" in done.err) is bool(
        lacking
    )
    done = case("pairs", case.path, "-k", 0)
    assert (done.code, case.pairs(done)) == (0, case.kind.pairs)
    case.refused("pairs", case.path, "-k", fpdb.describe(case.path).bits, because="probes")
    if case.kind.passages:
        assert case.pairs(case("pairs", case.path, "--passages")) == case.kind.pairs
    else:
        case.refused("pairs", case.path, "--passages", because="keeps no passages")


@row
def clusters(case):
    for options, expected in ([], case.kind.similar), (["-k", 0], case.kind.pairs):
        done = case("clusters", case.path, *options)
        assert len(done.out.splitlines()) == (5 if expected else 0)
        assert ("clusters 2, duplicates 3; " if expected else "clusters 0; ") in done.err
    lacking = case.kind.sketches == 0 and case.kind.documents
    assert ("which only -k compares: 7" in case("clusters", case.path).err) is bool(lacking)
    done = case("clusters", case.path, "-k", 0, "--delete-duplicates")
    assert done.code == 0
    case.expect(case.kind.documents - (3 if case.kind.pairs else 0))


@row
def copies(case):
    case.refused("copies", case.path, because="is a database")


@row
def report(case):
    case.refused("report", case.path, "-o", case.folder / "page.html", because="is a database")
    assert not (case.folder / "page.html").exists()


@row
def explore(case):
    assert case("explore", case.path, "--port", 70_000).code == 2


@row
def compare(case):
    case.refused("compare", case.path, because="is a database")
    digits = case.print_of_first
    bits = fpdb.describe(case.path).bits
    pair = ["--fingerprint", digits, "--fingerprint", digits]
    recipe = {32: "bigram-32", 64: "words", 128: "charikar"}[bits]
    done = case("compare", *pair, "--recipe", recipe)
    assert (done.code, "0" in done.out) == (0, True)


@row
def eval_(case):
    case.refused("eval", case.path, because="is a database")


@row
def serve(case):
    assert case("serve", case.path, "--port", 70_000).code == 2


@row
def follow(case):
    (case.folder / "new.jsonl").write_text(json.dumps(NEW) + "\n")
    with (case.folder / "new.jsonl").open("rb") as stdin:
        done = case("follow", case.path, stdin=stdin)
    takes = case.kind.texts or case.kind.sketches is not None
    assert json.loads(done.out)["status"] == ("added" if takes else "error")
    case.expect(case.kind.documents + takes)


@row
def mcp(case):
    call = {"name": "stats", "arguments": {}}
    line = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    (case.folder / "calls.jsonl").write_text(json.dumps(line) + "\n")
    with (case.folder / "calls.jsonl").open("rb") as stdin:
        done = case("mcp", case.path, stdin=stdin)
    stats = json.loads(done.out)["result"]["structuredContent"]
    assert stats["documents"] == case.kind.documents


@row
def load(case):
    prints = b"".join(b"%d\t%x\n" % (100 + place, number) for place, number in enumerate(PRINTS))
    done = case("load", case.path, "-", *FIELDS, "--format", "tsv", stdin=prints)
    assert done.code == 0
    if case.json:
        assert json.loads(done.out)["added"] == 7
    else:
        assert "read 7, added 7; " in done.err
    case.expect(case.kind.documents + 7)
    assert case("load", case.folder / "copy", case.path).code == 0
    case.expect(case.kind.documents + 7, case.folder / "copy")


@row
def export(case):
    done = case("export", case.path)
    rows = list(map(json.loads, done.out.splitlines()))
    if not case.json:  # the portable form, between its two marks
        assert rows[-1]["documents"] == case.kind.documents
        rows = rows[1:-1]
    assert sorted(str(row["key"]) for row in rows) == [
        str(number) for number in range(1, case.kind.documents + 1)
    ]
    whole, loaded = case.folder / "db.fpdb.jsonl", case.folder / "loaded.fpdb"
    if case.json:  # which is another form
        assert case("export", case.path, "-o", whole).code == 2
        return
    assert case("export", case.path, "-o", whole).code == 0
    assert case("load", loaded, whole).code == 0
    case.expect(case.kind.documents, loaded)
    assert fpdb.describe(loaded).sketches == case.kind.sketches


@row
def create(case):
    case.refused("create", case.path, because="there is a database")
    case.expect(case.kind.documents)
    recipe = fpdb.describe(case.path).recipe
    done = case("create", case.folder / "another", "--recipe", recipe)
    assert done.code == 0
    case.expect(0, case.folder / "another")


@row
def get(case):
    done = case("get", case.path, "1")
    if case.kind.documents:
        assert (done.code, case.keys(done)) == (0, ["1"])
        assert case.print_of_first in done.out
    else:
        assert (done.code, done.out) == (3, "")
    every = case("get", case.path, "--prefix", "")
    assert len(case.keys(every)) == case.kind.documents


@row
def delete(case):
    gone = 2 if case.kind.documents else 0
    done = case("delete", case.path, "1", "6", "99")
    if case.json:
        assert json.loads(done.out) == {"deleted": gone, "absent": 3 - gone}
    else:
        assert f"deleted: {gone}, not found: {3 - gone}" in done.err
    case.expect(case.kind.documents - gone)


@row
def stats(case):
    done, kind = case("stats", case.path), case.kind
    assert done.code == 0
    if case.json:
        shown = json.loads(done.out)
        counts = shown["documents"], shown["short"], shown["sketches"]
    else:
        shown = dict(line.split("  ", 1) for line in done.out.splitlines())
        counts = tuple(shown[name].strip() for name in ("documents", "short", "sketches"))
    sketches = kind.sketches if case.json or kind.sketches is not None else "-"
    expected = kind.documents, kind.short, sketches
    assert counts == (expected if case.json else tuple(map(str, expected)))


@row
def check(case):
    done = case("check", case.path, *["--deep"] * case.json)
    assert (done.code, done.out, done.err) == (0, "", "no problems\n")


@row
def backup(case):
    assert case("backup", case.path, "-o", case.folder / "copy").code == 0
    case.expect(case.kind.documents, case.folder / "copy")


@row
def compact(case):
    assert case("compact", case.path, "-o", case.folder / "new").code == 0
    case.expect(case.kind.documents, case.folder / "new")
    assert case("compact", case.path, "--replace", "--capacity", 5000).code == 0
    case.expect(case.kind.documents)


@row
def repair(case):
    done = case("repair", case.path, "-o", case.folder / "new")
    assert (done.code, done.out) == (0, "")
    case.expect(case.kind.documents, case.folder / "new")


@row
def fingerprint(case):
    case.refused("fingerprint", case.path, because="is a database")


@row
def plan(case):
    stored = fpdb.describe(case.path)
    done = case("plan", "--bits", stored.bits, "-k", stored.k, "--documents", 1000)
    assert (done.code, done.out != "") == (0, True)


@row
def recipes(case):
    stored = fpdb.describe(case.path)
    done = case("recipes", stored.recipe)
    assert (done.code, stored.recipe in done.out) == (0, True)


def test_each_command_has_a_row():
    assert set(program().commands) == set(ROWS)


@pytest.mark.parametrize(
    "name",
    [
        # These read in a process of their own.
        pytest.param(name, marks=[pytest.mark.process] if name in ("check", "load") else [])
        for name in sorted(program().commands)
    ],
)
@pytest.mark.parametrize(
    "case",
    [(kind, printed) for kind in KINDS for printed in (False, True)],
    ids=[f"{kind}{', json' * printed}" for kind in KINDS for printed in (False, True)],
    indirect=True,
)
def test_a_command_answers_on_a_kind_of_database(case, name):
    ROWS[name](case)
