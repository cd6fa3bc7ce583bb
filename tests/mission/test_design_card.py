"""The design card, clause by clause, read with LMDB alone, as the reference of the format says.

An LMDB environment with one sorted sub-database for each permutation table, keyed by the permuted
fingerprint; range scans on the high bits, with a Hamming check; ingest and query by command; backup
by copying the directory while others write.
"""

import json
import random
import re
import struct
import subprocess
import sys
from typing import NamedTuple

import lmdb
import msgpack
import numpy as np
import pytest
import xxhash
from waiting import wait_for

import fpdb

DICE = random.Random(5)


class Header(NamedTuple):
    """What the header says that the tables need."""

    bits: int
    k: int
    tables: list
    bands: dict | None

    @property
    def words(self):
        """The words of a fingerprint."""
        return 2 if self.bits == 128 else 1


class Environment:
    """A database as LMDB has it, with the layouts of docs/reference/format.md."""

    def __init__(self, path):
        self._env = lmdb.open(str(path), readonly=True, max_dbs=80)
        self.txn = self._env.begin()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.txn.abort()
        self._env.close()

    def names(self):
        return [bytes(name).decode() for name, _ in self.txn.cursor()]

    def cursor(self, name):
        return self.txn.cursor(self._env.open_db(name.encode(), self.txn, create=False))

    def header(self):
        [(key, value)] = list(self.cursor("header"))
        magic, _read, _write, checksum = struct.unpack("<4sHH", value[:8]) + struct.unpack(
            ">Q", value[8:16]
        )
        assert (key, magic) == (b"header", b"fpdb")
        assert checksum == checksum_of("header", key, value[:8] + value[16:])
        plan = msgpack.unpackb(value[16:])["plan"]
        return Header(plan["bits"], plan["k"], plan["tables"], plan.get("bands"))

    def pages(self, name, columns):
        """Each page of a sub-database as its key, and its rows."""
        for key, value in self.cursor(name):
            yield key, page_rows(name, key, value, columns)


def checksum_of(name, key, content):
    seed = xxhash.xxh3_64_intdigest(name.encode()) ^ int.from_bytes(key[-8:], "big")
    return xxhash.xxh3_64_intdigest(content, seed)


def page_rows(name, key, value, columns):
    """Decode a page into rows of whole numbers."""
    checksum, rows, widths = struct.unpack("<IHH", value[:8])
    assert len(value) <= 4080
    assert checksum == checksum_of(name, key, value[4:]) & 0xFFFF_FFFF
    bases = struct.unpack(f"<{columns}Q", value[8 : 8 + 8 * columns])
    at, decoded = 8 + 8 * columns, []
    for column, base in enumerate(bases):
        width = widths >> 4 * column & 15
        packed = np.frombuffer(value, np.uint8, rows * width, at).reshape(rows, width)
        at += rows * width
        numbers = [int.from_bytes(bytes(row), "little") + base for row in packed]
        decoded.append(numbers)
    assert at == len(value)
    return list(zip(*decoded, strict=True))


def fingerprint_of(words):
    return int.from_bytes(b"".join(word.to_bytes(8, "big") for word in words), "big")


def permuted(number, bits, blocks):
    """Put blocks of bits, counted from the highest, one behind the other."""
    written = f"{number:0{bits}b}"
    return int("".join(written[start : start + length] for start, length in blocks), 2)


def unpermuted(number, bits, blocks):
    written, places = f"{number:0{bits}b}", iter(range(bits))
    originals = {
        at: next(places) for start, length in blocks for at in range(start, start + length)
    }
    return int("".join(written[originals[at]] for at in range(bits)), 2)


def varint(value, at):
    number = shift = 0
    while True:
        byte = value[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


class Record(NamedTuple):
    """A document as it is stored."""

    id: int
    key: str
    fingerprint: int | None
    digest: bytes | None
    sketch: bytes | None


def record_of(key, value, bits):
    """Decode a record up to its key."""
    checksum, flags = struct.unpack(">IB", value[:5])
    assert checksum == checksum_of("documents", key, value[4:]) & 0xFFFF_FFFF
    at, fields = 5, []
    for flag, size in ((2, 16), (4, 128), (1, bits // 8)):
        fields.append(value[at : at + size] if flags & flag else None)
        at += size if flags & flag else 0
    at += 5 if flags & 64 else 4
    if flags & 8:
        _characters, at = varint(value, at)
    size, at = varint(value, at)
    digest, sketch, fingerprint = fields
    number = None if fingerprint is None else int.from_bytes(fingerprint, "big")
    return Record(
        int.from_bytes(key, "big"), value[at : at + size].decode(), number, digest, sketch
    )


def text_of(words):
    return " ".join(f"word{DICE.randrange(10**6)}" for _ in range(words))


TEXTS = {f"https://made.example/{number}": text_of(40) for number in range(1500)}
# Some texts twice, and some a little changed.
TEXTS |= {f"{key}?again": text for key, text in list(TEXTS.items())[:50]}
TEXTS |= {f"{key}?edited": f"{text} and more" for key, text in list(TEXTS.items())[100:200]}


@pytest.fixture(scope="module")
def texts_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    lines = [json.dumps({"key": key, "text": text}) for key, text in TEXTS.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def bits_file(path, bits):
    """Write random fingerprints, and near ones; return them by their keys."""
    dice = random.Random(bits)
    numbers = [dice.getrandbits(bits) for _ in range(3000)]
    numbers += [
        number ^ sum(1 << bit for bit in dice.sample(range(bits), place % 5))
        for place, number in enumerate(numbers[:600])
    ]
    stored = {f"key {place}": number for place, number in enumerate(numbers)}
    digits = bits // 4
    path.write_text("".join(f"{key}\t{number:0{digits}x}\n" for key, number in stored.items()))
    return stored


KINDS = ["similarity", "words", "32 bits", "64 bits", "128 bits", "integer keys"]


@pytest.fixture(params=KINDS)
def made(request, run, tmp_path, texts_file):
    """A database that commands made, and the fingerprints of its documents by command."""
    db, kind = tmp_path / "made.fpdb", request.param
    if kind in {"similarity", "words"}:
        recipe = "web" if kind == "similarity" else "words"
        assert run("create", db, "--recipe", recipe).code == 0
        assert run("ingest", db, texts_file).code == 0
        shown = run("fingerprint", texts_file, "--recipe", recipe, "--key-field", "key")
        numbers = [int(row[0], 16) for row in shown.rows]
        return db, dict(zip(TEXTS, numbers, strict=True))
    bits = int(kind.split()[0]) if "bits" in kind else 64
    stored = bits_file(tmp_path / "bits.tsv", bits)
    columns = ["--key-field", 1, "--fingerprint-field", 2]
    recipe = {32: "none-32", 64: "none", 128: "none-128"}[bits]
    if kind == "integer keys":
        stored = {int(key.split()[1]) * 2**40: number for key, number in stored.items()}
        rows = [f"{key}\t{number:016x}\n" for key, number in stored.items()]
        (tmp_path / "bits.tsv").write_text("".join(rows))
        columns += ["--key-type", "integer"]
    # Of 32 bits, two tables are chosen, which take a single probe each for k = 1.
    columns += ["--recipe", recipe, "-k", 1 if bits == 32 else 3]
    assert run("load", db, tmp_path / "bits.tsv", *columns).code == 0
    return db, stored


def test_each_table_is_a_sorted_sub_database_of_permuted_fingerprints(made):
    db, stored = made
    with Environment(db) as env:
        header = env.header()
        tables = [name for name in env.names() if re.fullmatch(r"table-\d\d", name)]
        assert tables == [f"table-{number:02}" for number in range(len(header.tables))]
        assert len(tables) > 1
        for name, table in zip(tables, header.tables, strict=True):
            home = name == "table-00"
            columns = header.words + home
            pages = list(env.pages(name, columns))
            keys = [key for key, _ in pages]
            assert keys == sorted(set(keys))
            assert keys == [struct.pack(f">{columns}Q", *rows[0]) for _, rows in pages]
            assert len(pages) > 1
            rows = [fingerprint_of(row[: header.words]) for _, rows in pages for row in rows]
            fingerprints = list(stored.values()) if home else set(stored.values())
            blocks = table["blocks"]
            assert rows == sorted(permuted(one, header.bits, blocks) for one in fingerprints)
            assert 0 < table["prefix"] < header.bits
        assert header.tables[0]["blocks"][0][0] == 0  # the home table leaves bits where they are


def test_records_have_the_fingerprints_and_the_home_table_their_ids(made):
    db, stored = made
    with Environment(db) as env:
        header = env.header()
        home = [row for _, rows in env.pages("table-00", header.words + 1) for row in rows]
        ids = {row[-1]: fingerprint_of(row[:-1]) for row in home}
        assert len(ids) == len(home)
        if "keys" not in env.names():
            assert ids == stored
            return
        records = [record_of(key, value, header.bits) for key, value in env.cursor("documents")]
        assert {record.key: record.fingerprint for record in records} == stored
        assert {record.id: record.fingerprint for record in records} == ids
        if header.bands:
            bands = [row for _, rows in env.pages("bands", 2) for row in rows]
            assert bands == sorted(band for record in records for band in bands_of(record, header))


def bands_of(record, header):
    """The rows of a document in the sub-database of bands."""
    count, bins = header.bands["count"], header.bands["bins"]
    sketch = int.from_bytes(record.sketch, "little")
    for band in range(count):
        yield (sketch >> 4 * bins * band) % 16**bins + band * 16**bins, record.id


def scan(env, header, query):
    """All fingerprints that share the prefix of a query in any table, by LMDB's cursor alone."""
    near = set()
    for number, table in enumerate(header.tables):
        name, columns = f"table-{number:02}", header.words + (number == 0)
        free = header.bits - table["prefix"]
        low = permuted(query, header.bits, table["blocks"]) >> free << free
        high = low + (1 << free) - 1
        words = struct.pack(">Q", low) if header.bits < 128 else low.to_bytes(16, "big")
        cursor = env.cursor(name)
        # The low end may be on the page before the first key that isn't below it.
        if not cursor.set_range(words):
            cursor.last()
        elif cursor.key() > words:
            cursor.prev() or cursor.first()
        for key, value in cursor.iternext():
            if fingerprint_of(struct.unpack(f">{columns}Q", key)[: header.words]) > high:
                break
            for row in page_rows(name, key, value, columns):
                permuted_row = fingerprint_of(row[: header.words])
                if low <= permuted_row <= high:
                    near.add(unpermuted(permuted_row, header.bits, table["blocks"]))
    return near


def test_recent_pages_have_the_newest_rows_of_a_large_table(tmp_path):
    stored = {key: DICE.getrandbits(64) for key in range(60_000)}
    keys, numbers = list(stored), list(stored.values())
    with fpdb.create(tmp_path / "db", recipe="none", keys="integer", k=3) as db:
        db.add_fingerprints(keys[:50_000], numbers[:50_000])
        for first in range(50_000, 60_000, 1000):
            db.add_fingerprints(keys[first : first + 1000], numbers[first : first + 1000])
    with Environment(tmp_path / "db") as env:
        header = env.header()
        for number, table in enumerate(header.tables):
            name = f"table-{number:02}"
            others, recent = (
                {row for _, rows in env.pages(each, 1 + (not number)) for row in rows}
                for each in (name, f"{name}-recent")
            )
            assert 50_000 < len(others) < 60_000
            assert {permuted(one, 64, table["blocks"]) for one in numbers} == {
                row[0] for row in others | recent
            }
        home = {row[-1] for _, rows in env.pages("table-00-recent", 2) for row in rows}
        assert min(home) >= 50_000


def test_a_range_scan_and_a_hamming_check_find_what_query_finds(run, made):
    db, stored = made
    queries = list(stored.values())[:40]
    with Environment(db) as env:
        header = env.header()
        k = min(header.k, 3)  # a larger one flips bits of the prefixes
        prefixes = [scan(env, header, query) for query in queries]
    digits, matched = header.bits // 4, 0
    for query, candidates in zip(queries, prefixes, strict=True):
        near = {number for number in candidates if (number ^ query).bit_count() <= k}
        assert near == {number for number in stored.values() if (number ^ query).bit_count() <= k}
        expected = {
            str(key): (number ^ query).bit_count()
            for key, number in stored.items()
            if number in near
        }
        shown = run("query", db, "-k", k, "--fingerprint", f"{query:0{digits}x}")
        assert {key: int(distance) for _, key, distance in shown.rows} == expected
        matched += len(expected)
    assert matched > len(queries)
    assert max(map(len, prefixes)) < len(stored)


def test_ingest_and_query_are_commands(run, tmp_path, texts_file):
    db = tmp_path / "texts.fpdb"
    skipped = run("ingest", db, texts_file, "--skip-duplicates").rows
    assert {key: other for key, other, _ in skipped} == {
        key: key.partition("?")[0] for key in TEXTS if "?" in key
    }
    one = "https://made.example/120"
    shown = run("query", db, "--text", f"{TEXTS[one]} and still more")
    assert shown.rows[0][1] == one
    assert float(shown.rows[0][2]) > 0.8


# Each transaction adds two documents; a copy that isn't torn has both or none. What is durable is
# written to a file, as a number.
WRITER = """
import itertools, sys, fpdb
with fpdb.open(sys.argv[1]) as db, open(sys.argv[2], "w") as durable:
    for number in itertools.count():
        texts = [" ".join(f"{side}{number}x{word}" for word in range(30)) for side in "ab"]
        pair = [fpdb.Document(f"{side}{number}", text) for side, text in zip("ab", texts)]
        list(db.add_many(pair))
        if number % 3 == 2:
            db.delete_many([f"a{number - 1}", f"b{number - 1}"])  # its pages are used again
        durable.seek(0)
        durable.write(f"{number:09}")
        durable.flush()
"""


class Writer:
    """A process that adds documents all the time, and what it has stored durably."""

    def __init__(self, db, durable):
        self._durable = durable
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(db), str(durable)])

    @property
    def last(self):
        return int(self._durable.read_text() or -1) if self._durable.exists() else -1

    def wait_for(self, number):
        wait_for(lambda: self.last >= number or self.process.poll() is not None)
        assert self.process.poll() is None


@pytest.fixture
def live(run, tmp_path):
    """A database, and a process that writes to it."""
    db = tmp_path / "live.fpdb"
    assert run("create", db).code == 0
    writer = Writer(db, tmp_path / "durable")
    yield db, writer
    writer.process.kill()
    writer.process.wait()


# Copies the data file from its start, and takes about a second for it.
SLOWLY = """
import os, sys, time
os.mkdir(sys.argv[2])
with open(f"{sys.argv[1]}/data.mdb", "rb") as source, open(f"{sys.argv[2]}/data.mdb", "wb") as copy:
    size = os.fstat(source.fileno()).st_size
    for _ in range(20):
        copy.write(source.read(-(-size // 20 // 4096) * 4096))
        time.sleep(0.05)
"""
COPIERS = {"cp": ["cp", "-r"], "slowly": [sys.executable, "-c", SLOWLY]}


def backup(run, db, copy):
    assert run("backup", db, "-o", copy).code == 0


def backup_with(copier):
    def copy_under_snapshot(run, db, copy):
        done = run("backup", db, "--", *copier, db, copy)
        assert done.code == 0, done.err

    return copy_under_snapshot


def hold_with(copier):
    def copy_under_snapshot(run, db, copy):
        with fpdb.open(db, readonly=True) as opened, opened.hold():
            subprocess.run([*copier, db, copy], check=True)

    return copy_under_snapshot


WAYS = [pytest.param(backup, id="backup")]
WAYS += [pytest.param(hold_with(copier), id=f"hold-{name}") for name, copier in COPIERS.items()]
WAYS += [pytest.param(backup_with(copier), id=f"backup-{name}") for name, copier in COPIERS.items()]


@pytest.mark.process
@pytest.mark.parametrize("make_copy", WAYS)
def test_a_copy_of_the_directory_is_a_backup_while_a_writer_runs(run, tmp_path, live, make_copy):
    db, writer = live
    for turn in range(2):
        writer.wait_for(writer.last + 40)
        copy, last = tmp_path / f"copy-{turn}.fpdb", writer.last
        make_copy(run, db, copy)
        shown = run("check", copy, "--deep")
        assert (shown.code, shown.out) == (0, "")
        with fpdb.open(copy, readonly=True) as opened:
            keys = set(opened)
        pairs = {int(re.fullmatch(r"[ab](\d+)", key)[1]) for key in keys}
        assert keys == {f"{side}{number}" for side in "ab" for number in pairs}
        deleted = {number - 1 for number in range(last + 1) if number % 3 == 2}
        assert pairs >= set(range(last + 1)) - deleted - {last}
        assert last in pairs or last + 1 in pairs  # it may be deleted by now
        assert not pairs & deleted
        text = " ".join(f"a{max(pairs)}x{word}" for word in range(30))
        [[_, key, similarity]] = run("query", copy, "--text", text).rows
        assert (key, float(similarity)) == (f"a{max(pairs)}", 1)
    writer.wait_for(writer.last + 1)
