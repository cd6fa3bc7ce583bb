"""fpdb export and load of the portable form: files, pipes, and what doesn't go with it."""

import codecs
import gzip
import io
import random
import subprocess
import time

import pytest
import zstandard

import fpdb

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
PORTABLE = ("--format", "portable")
PAGE = "The library lends books for four weeks; whoever keeps them longer pays a small fee. "


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as database:
        database.add("https://a.example/1", PAGE * 3, {"title": "图\x1b]0;\x7f", "x": [1, {}]})
        database.add("b", "short")
        database.add_fingerprints(["c"], [3])
    return where


def dumped(path):
    file = io.BytesIO()
    with fpdb.open(path, readonly=True) as database:
        database.dump(file)
    return file.getvalue()


@pytest.mark.process
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_suffixes_tell_what_to_write(run, path, tmp_path, suffix):
    file, copy = tmp_path / f"crawl.fpdb.jsonl{suffix}", tmp_path / "copy.fpdb"
    done = run("export", path, "-o", file)
    assert (done.code, done.out, done.err) == (0, "", f"{file}: 3 documents\n")
    unpack = {"": bytes, ".gz": gzip.decompress, ".zst": unzstd}[suffix]
    assert unpack(file.read_bytes()) == dumped(path)
    done = run("load", copy, file)
    assert done.code == 0
    assert "read 3, added 2, short 1;" in done.err
    assert dumped(copy) == dumped(path)
    again = run("load", copy, file, "--quiet")
    assert (again.code, again.err) == (0, "")
    assert run("check", copy).err == "no problems\n"


def unzstd(data):
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()


@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.full)])
def test_through_a_pipe_of_real_processes(start, path, tmp_path, packed):
    copy = tmp_path / "copy.fpdb"
    export = start("export", path, stdin=subprocess.DEVNULL)
    stream, commands = export.stdout, []
    if packed:
        commands.append(subprocess.Popen(["gzip"], stdin=stream, stdout=subprocess.PIPE))
        stream = commands[-1].stdout
    load = start("load", copy, "-", "--format", "portable", stdin=stream)
    _, errors = load.communicate(timeout=60)
    assert load.returncode == 0, errors
    for command in commands:
        assert command.wait(60) == 0
        command.stdout.close()
    assert export.wait(60) == 0
    assert b"read 3, added 2" in errors
    assert dumped(copy) == dumped(path)


@pytest.mark.process
@pytest.mark.parametrize("name", ["-", "crawl.jsonl", "marked.jsonl", "crawl.JSONL.gz", "crawl"])
def test_an_export_is_told_by_how_it_begins(run, path, tmp_path, name):
    data, file = dumped(path), name if name == "-" else tmp_path / name
    data = gzip.compress(data) if name.endswith(".gz") else data
    data = codecs.BOM_UTF8 + data if name.startswith("marked") else data
    if name != "-":
        file.write_bytes(data)
    for count in ("added 2, short 1", "unchanged 3"):
        done = run("load", tmp_path / "copy.fpdb", file, stdin=data)
        assert (done.code, f"read 3, {count}; " in done.err) == (0, True)
    assert dumped(tmp_path / "copy.fpdb") == dumped(path)


def test_records_through_a_pipe_are_named_as_such(run, path, tmp_path):
    """They have keys and fingerprints, while an export has everything, and neither is guessed."""
    lines, copy = run("export", path, "--json").out.encode(), tmp_path / "copy.fpdb"
    refused = run("load", copy, "-", stdin=lines)
    assert (refused.code, copy.exists()) == (3, False)
    assert "records have another format, e.g. jsonl" in refused.err
    assert run("load", copy, "-", "--format", "jsonl", stdin=lines).err.count("added 2") == 1


@pytest.mark.parametrize("options", [["--recipe", "web"], ["--key-type", "text"]])
def test_options_that_the_file_decides_are_refused(run, path, tmp_path, options):
    done = run("load", tmp_path / "copy.fpdb", "-", *PORTABLE, *options, stdin=dumped(path))
    assert done.code == 3
    assert "a database, or its portable form, says how it was created" in done.err
    assert not (tmp_path / "copy.fpdb").exists()


@pytest.fixture
def large(tmp_path):
    """A database whose first block of zstd alone is larger than a buffer of standard input."""
    where, chance = tmp_path / "large.fpdb", random.Random(5)
    with fpdb.create(where, recipe="char-4") as database:
        keys = [f"https://a.example/{chance.getrandbits(300):x}" for _ in range(3000)]
        database.add_fingerprints(keys, [chance.getrandbits(64) for _ in keys])
    return where


@pytest.mark.parametrize("name", ["large.fpdb.jsonl.zst", "-"])
def test_a_large_packed_export_is_loaded(run, large, tmp_path, name):
    data = zstandard.ZstdCompressor().compress(dumped(large))
    assert len(data) > 1 << 17
    file = name if name == "-" else tmp_path / name
    if name != "-":
        file.write_bytes(data)
    options = () if name.endswith(".fpdb.jsonl.zst") else PORTABLE
    done = run("load", tmp_path / "copy.fpdb", file, *options, stdin=data)
    assert done.code == 0
    assert dumped(tmp_path / "copy.fpdb") == dumped(large)


@pytest.mark.parametrize(("first", "suffix"), [(3, ""), (15, ".zst")])
def test_a_pipe_that_begins_slowly_is_loaded(start, path, tmp_path, suffix, first):
    data = PACK[suffix](dumped(path))
    load = start("load", tmp_path / "copy.fpdb", "-", *PORTABLE)
    for part in (data[:first], data[first:]):
        load.stdin.write(part)
        load.stdin.flush()
        time.sleep(0.3)
    _, errors = load.communicate(timeout=60)
    assert load.returncode == 0, errors
    assert dumped(tmp_path / "copy.fpdb") == dumped(path)
