"""Documents that are deleted with an undo file, and what goes on after a key."""

import io

import pytest

import fpdb

TEXTS = {f"https://{n}.example/": " ".join(f"word{n}x{m}" for m in range(40)) for n in range(2500)}


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_what_is_deleted_comes_back(tmp_path, keys):
    names = list(TEXTS) if keys == "text" else list(range(len(TEXTS)))
    with fpdb.create(tmp_path / "db", keys=keys) as db:
        documents = zip(names, TEXTS.values(), strict=True)
        list(db.add_many(fpdb.Document(key, text, {"n": key}) for key, text in documents))
        before = {document.key: document for document in db.scan()}
        file = tmp_path / "undo.fpdb.jsonl"
        missing = "missing" if keys == "text" else 1 << 40
        with file.open("wb") as undo:
            assert db.delete_many([*names[::2], names[0], missing], undo=undo) == 1250
        assert sorted(db) == sorted(names[1::2])
        fpdb.load(db.path, str(file))
        for document in db.scan():
            was = before.pop(document.key)
            assert (document.sketch, document.meta) == (was.sketch, was.meta)
            assert (document.added, document.digest) == (was.added, was.digest)
            assert document.fingerprint == was.fingerprint
        assert not before


def test_nothing_is_deleted_if_the_file_can_t_be_written(tmp_path):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with fpdb.create(tmp_path / "db") as db:
        db.add("a", TEXTS["https://1.example/"])
        for undo in (Full(), open("/dev/full", "wb")):  # noqa: SIM115
            with pytest.raises((OSError, fpdb.FpdbError)):
                db.delete_many(["a"], undo=undo)
            assert "a" in db
        undo.raw.close()
        memory = io.BytesIO()
        assert db.delete_many(["a"], undo=memory) == 1
        assert memory.getvalue().count(b"\n") == 3


def test_a_scan_goes_on_after_a_key(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(fpdb.Document(key, text) for key, text in TEXTS.items()))
        ordered = sorted(TEXTS)
        assert [each.key for each in db.scan(after=ordered[1200])] == ordered[1201:]
        found = db.scan(after="https://10", prefix="https://1")
        assert [each.key for each in found] == [
            key for key in ordered if key > "https://10" and key.startswith("https://1")
        ]
        with pytest.raises(fpdb.InputError):
            next(db.scan(after=7))
