"""No command that writes a file replaces one that it reads, or one of a database."""

import json
import os
import subprocess

import pytest

import fpdb
from fpdb.cli.app import program

TEXT = "Red kites nest above the old quarry again this spring: wardens counted eleven pairs"
# Options that name a file or a folder that is read, or where temporary files lie; all others write.
READ = {
    "recipe",
    "texts",
    "common",
    "keys_from",
    "token_file",
    "tls_cert",
    "tls_key",
    "unix",
    "tmp",
}
WRITERS = [
    (name, option.opts[0], option.metavar)
    for name, command in program().commands.items()
    for option in command.params
    if option.param_type_name == "option" and option.name not in READ
    if {"FILE", "FILE.html", "DIR", "NEW", "PATH"} & set((option.metavar or "").split("|"))
]
PLACES = ["itself", "relative", "link", "hard link", "folder", "in a database", "database"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with records under two names, and a database."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"key": f"{n}", "text": f"{TEXT} {n}"}) + "\n" for n in range(20)]
    for name in ("a.jsonl", "a.html"):
        (tmp_path / name).write_text("".join(lines))
    with fpdb.create(tmp_path / "a.fpdb") as database:
        database.add("key", TEXT)
    return tmp_path


def contents(folder):
    """Return the bytes of all files by their paths, but for the locks of a database."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("lock")
    }


def target_of(place, suffix, source):
    """Make a path that leads to an input, or into a database."""
    name = f"made{suffix}"
    if place == "link":
        os.symlink(source, name)
    elif place == "hard link":
        os.link(source, name)
    elif place == "folder":
        os.symlink(".", "sub")
        name = f"sub/{source}"
    elif place == "in a database":
        name = f"a.fpdb/{name}"
    elif place == "database":
        os.symlink("a.fpdb/data.mdb", name)
    else:
        name = source if place == "itself" else f"./../{os.path.basename(os.getcwd())}/{source}"
    return name


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("command", "option", "metavar"), WRITERS)
def test_an_output_is_no_input_and_no_file_of_a_database(
    run, folder, command, option, metavar, place
):
    words = {"DB": "a.fpdb", "FILE|DIR|-": "a.jsonl", "FILE|DIR": "a.jsonl", "FILE|-": "a.jsonl"}
    given = [
        each for each in program().commands[command].params if each.param_type_name != "option"
    ]
    given = [words[each.metavar] for each in given if each.name != "command"]
    suffix = ".html" if metavar.endswith(".html") else ".jsonl"
    if suffix == ".html" and place in ("itself", "relative", "folder"):
        given = ["--format", "jsonl", "a.html"]
    source = given[-1]
    if source == "a.fpdb":
        source = "a.fpdb/data.mdb"
        if place == "hard link":
            pytest.skip("the database has its name still")
    target = target_of(place, suffix, source)
    if metavar == "DIR":
        target = os.path.dirname(target) if place in ("folder", "in a database") else "."
        if place in ("link", "hard link", "database"):
            os.mkdir("out")
            os.rename(f"made{suffix}", f"out/{source}")
            target = "out"
    if command == "compact":
        given += ["--capacity", 1000]
    if option in ("--removed", "--report"):
        given += ["-o", "free.jsonl"]
    before = contents(folder)
    done = run(command, *given, option, target)
    assert done.code in (2, 3), done.err
    assert contents(folder) == before


def test_a_report_is_no_other_output(run, folder):
    os.symlink("o.jsonl", "page.html")
    done = run("dedupe", "a.jsonl", "-o", "o.jsonl", "--report", "page.html")
    assert (done.code, "a file of its own" in done.err) == (2, True)
    assert not os.path.exists("o.jsonl")


@pytest.mark.process
@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_standard_streams_may_be_the_same_file(folder, warm_commands, output):
    before = contents(folder)
    form = ["--json"] if output == "-" else []
    for source in ("a.jsonl", "-"):
        command = [warm_commands / "fpdb", "query", "a.fpdb", source, "-o", output, *form]
        with open("a.jsonl", "rb") as given, open("a.jsonl", "ab") as out:
            done = subprocess.run(command, check=False, stdin=given, stdout=out, stderr=-1)
        assert (done.returncode, b"is an input" in done.stderr) == (3, True), done.stderr
    assert contents(folder) == before
    with open("a.jsonl", "rb") as given, open("out", "ab") as out:
        assert subprocess.run(command, check=True, stdin=given, stdout=out).returncode == 0
    assert os.path.getsize("out")
