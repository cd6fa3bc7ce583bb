"""The portable form, version 1: a file that was written once must be readable for ever.

`python tests/format/test_golden_portable.py` writes it if it isn't there.
"""

import io
import json
import tempfile
from pathlib import Path

import fpdb

FILE = Path(__file__).with_name("portable-1.fpdb.jsonl")
PAGE = "The library lends books for four weeks; whoever keeps them longer pays a small fee. "


def documents():
    yield fpdb.Document(
        "https://example.org/1", PAGE * 3, {"title": "图书馆\x7f", "n": 2**64 - 1}, added=1
    )
    yield fpdb.Document(
        "https://example.org/2", PAGE, [None, True, -0.5, -(2**63), {"": []}], added=0
    )
    yield fpdb.Document("词", "a b, c", "\u202e\x00", added=1_750_000_000)
    yield fpdb.Document("long/" * 200, fingerprint=0, sketch=bytes(range(128)), added=1_750_000_001)
    yield fpdb.Document("bare", fingerprint=2**64 - 1, added=253_402_300_799)


def written(folder):
    with fpdb.create(Path(folder, "a"), k=2, capacity=50_000) as database:
        list(database.add_many(documents()))
        file = io.BytesIO()
        database.dump(file)
    return file.getvalue()


def test_it_is_read_as_it_was_written(tmp_path):
    loaded = fpdb.load(tmp_path / "new", str(FILE))
    assert loaded.added == 4
    wanted = {each.key: each for each in documents()}
    lines = {
        line.get("key"): line for line in map(json.loads, FILE.read_text("ascii").splitlines())
    }
    with fpdb.open(tmp_path / "new") as database:
        assert (database.k, database.similarity, database.stats().capacity) == (2, 0.8, 50_000)
        assert list(database.check()) == []
        held = {each.key: each for each in database.scan()}
        assert held.keys() == wanted.keys()
        for key, document in held.items():
            given, line = wanted[key], lines[key]
            assert (document.meta, document.added) == (given.meta, given.added)
            number = None if document.fingerprint is None else f"{document.fingerprint:016x}"
            assert number == line["fingerprint"]
            assert document.characters == len(given.text or "")
            assert (document.digest or b"").hex() == line.get("digest", "")
        assert held["long/" * 200].sketch == bytes(range(128))
        assert database.query(PAGE * 3)[0].key == "https://example.org/1"
        assert database.query("a b, c")[0].key == "词"


def test_it_is_still_written_so(tmp_path):
    assert written(tmp_path) == FILE.read_bytes(), "what is new needs a version of its own"


if __name__ == "__main__":
    if not FILE.exists():
        with tempfile.TemporaryDirectory() as made:
            FILE.write_bytes(written(made))
