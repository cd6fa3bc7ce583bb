"""Loading sorted columns from the command line."""

import random

import pytest

import fpdb

pytest.importorskip("pyarrow", reason="pyarrow isn't installed")

from sorted_files import content_of, write_sorted_columns


@pytest.fixture
def columns(tmp_path):
    with fpdb.create(tmp_path / "old", k=5, capacity=7) as db:
        texts = {"a": " ".join(map(str, range(40))), "b": "short"}
        list(db.add_many([fpdb.Document(key, text) for key, text in texts.items()]))
        write_sorted_columns(tmp_path / "columns", db, random.Random(1))
        return content_of(db)


def test_a_directory_becomes_a_database(run, tmp_path, columns):
    path = tmp_path / "new"
    done = run("ingest", path, tmp_path / "columns", "--sorted")
    assert (done.code, done.out) == (0, "")
    created, summary = done.err.splitlines()
    assert created.startswith(f"created {path}: recipe web (")
    assert "; k 5; " in created
    assert created.endswith("; keys text")
    assert summary.startswith("loaded 2 documents; ")
    with fpdb.open(path, readonly=True) as db:
        assert content_of(db) == columns
    again = run("ingest", path, tmp_path / "columns", "--sorted")
    assert again.code == 3
    assert "there is a database at" in again.err
    quiet = run("ingest", tmp_path / "third", "--sorted", tmp_path / "columns", "-qr", "web")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_another_recipe_is_refused(run, tmp_path, columns):
    done = run("ingest", tmp_path / "new", tmp_path / "columns", "--sorted", "--recipe", "char-4")
    assert done.code == 3
    assert "was written with the recipe" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "options", [["--k", "5"], ["--jobs", "2"], ["--keys", "text"], ["--follow"], ["more"], []]
)
def test_wrong_usage_is_told(run, tmp_path, columns, options):
    given = [*options, tmp_path / "columns"] if options else []
    done = run("ingest", tmp_path / "new", "--sorted", *given)
    assert done.code == 2
    assert "--sorted" in done.err
    assert not (tmp_path / "new").exists()


def test_without_pyarrow_the_extra_is_named(run, tmp_path, columns, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    done = run("ingest", tmp_path / "new", tmp_path / "columns", "--sorted")
    assert done.code == 3
    assert "pip install 'fpdb[arrow]'" in done.err
    assert not (tmp_path / "new").exists()


def test_an_interrupted_load_leaves_nothing(run, tmp_path, columns, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fpdb.tables.pages.Pages.fill", interrupted)
    done = run("ingest", tmp_path / "new", tmp_path / "columns", "--sorted")
    assert done.code == 130
    assert done.err == "interrupted: no database was made\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["columns", "old"]
