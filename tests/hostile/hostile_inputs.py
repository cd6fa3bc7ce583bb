"""The hostile inputs: what is written, how it is fed to fpdb, and the outcome that is documented.

`make` writes what is fed into an empty folder, in a process of its own; `feed` names the function
of hostile_feeds.py that is measured; `ends` is a regular expression for what it must report.
"""

import gzip
import json
import os
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
LARGEST = 2 * MIB
LAST = json.dumps({"key": "last", "text": "the last document of this stream is still read well"})
LAST_CSV = "last,the last document of this stream is still read well\n"


@dataclass(frozen=True)
class Hostile:
    """One hostile input."""

    make: Callable[[Path], None]
    feed: str
    ends: str
    options: dict[str, Any] = field(default_factory=dict)


INPUTS: dict[str, Hostile] = {}


def _han(count: int) -> str:
    chosen = random.Random(7)
    return "".join(map(chr, chosen.choices(range(0x4E00, 0x9FA0), k=count)))


def _words(size: int) -> str:
    return " ".join(f"{number:x}" for number in range(size // 6))[:size]


def _letters(size: int) -> str:
    return "".join(random.Random(5).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def _file(name: str, content: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content())


# Lines and records through `fpdb ingest`; the document after the bad one must arrive.


def _stream(
    name: str,
    file: str,
    content: Callable[[], bytes],
    ends: str,
    *arguments: str,
    last: bool = True,
) -> None:
    options = {"file": file, "arguments": arguments, "last": last}
    INPUTS[name] = Hostile(_file(file, content), "ingest", ends, options)


def _jsonl(name: str, line: Callable[[], str | bytes], ends: str) -> None:
    def content() -> bytes:
        made = line()
        raw = made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass")
        return raw + b"\n" + LAST.encode() + b"\n"

    _stream(name, "input.jsonl", content, ends)


_BAD = r"read 2, added 1, .*bad 1;"
_SHORT = r"read 2, added 1, short 1;"


def _record(**fields: object) -> str:
    return json.dumps({"key": "k"} | fields, ensure_ascii=False)


_jsonl("a line of 64 MiB", lambda: b"x" * (64 * MIB), _BAD)
_jsonl("a line one byte too long", lambda: _record(text="x" * LARGEST), _BAD)
_jsonl("JSON of 100,000 brackets", lambda: '{"key":' + "[" * 100_000, _BAD)
_jsonl(
    "deep metadata", lambda: '{"key": "k", "text": "t", "m": ' + "[" * 900 + "]" * 900 + "}", _SHORT
)
_jsonl("a number of a million digits", lambda: '{"key": ' + "9" * MIB + ', "text": "t"}', _BAD)
_jsonl("a number with a huge exponent", lambda: '{"key": "k", "text": 1e999999999}', _BAD)
_jsonl("a fraction of a million digits", lambda: '{"key": "k", "text": 0.' + "9" * MIB + "}", _BAD)
_jsonl("one field 150,000 times", lambda: "{" + '"key":"k",' * 150_000 + '"text":"t"}', _SHORT)
_jsonl(
    "2 MiB of empty objects",
    lambda: '{"key": "k", "text": [' + "{}," * (LARGEST // 3 - 20) + "0]}",
    _BAD,
)
_jsonl(
    "a hundred thousand fields",
    lambda: "{" + ",".join(f'"f{n:x}":0' for n in range(150_000)) + ', "key": "k", "text": "t"}',
    _SHORT,
)
_jsonl("a key of a megabyte", lambda: _record(key="k" * MIB, text="t"), _BAD)
_jsonl(
    "a text of escaped halves",
    lambda: '{"key": "k", "text": "' + "\\ud800" * 300_000 + '"}',
    _SHORT,
)
_jsonl("escapes that shrink", lambda: '{"key": "k", "text": "' + "\\u0061" * 300_000 + '"}', _SHORT)
_jsonl("two megabytes of spaces", lambda: " " * (LARGEST - 10), r"read 1, added 1;")
_jsonl("a million empty lines", lambda: "\n" * MIB, r"read 1, added 1;")
_jsonl(
    "fifty thousand bad lines",
    lambda: "{\n" * 49_999 + "{",
    r"read 50,001, added 1, .*bad 50,000;",
)
_stream(
    "a line that never ends",
    "input.jsonl",
    lambda: (LAST + "\n").encode() + b"y" * (48 * MIB),
    _BAD,
)


def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def _zeros(size: int) -> bytes:
    """Pack N zeros without having them in memory."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    piece = bytes(MIB)
    return b"".join(packer.compress(piece) for _ in range(size // MIB)) + packer.flush()


def _zstd(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(content)


_NOT_READ = r"added 1(.|\n)*that can't be read, or not to their ends: {}\s"
_UNREADABLE = r"exit 3: (.|\n)*the file can't be used"


def _packed(name: str, file: str, content: Callable[[], bytes], ends: str = _UNREADABLE) -> None:
    _stream(name, file, content, ends, last=False)


_packed(
    "a gzip bomb of 128 MiB",
    "input.jsonl.gz",
    lambda: _zeros(128 * MIB),
    r"exit 3: (.|\n)*the record can't be used",
)
_packed(
    "a gzip bomb in a gzip bomb",
    "input.jsonl.gz",
    lambda: _gzipped(_zeros(64 * MIB)),
    "isn't text: it is packed by gzip",
)
_packed("a gzip bomb as a text", "input.txt.gz", lambda: _zeros(64 * MIB))
_packed(
    "zstd frames to skip",
    "input.jsonl.zst",
    lambda: b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + bytes(MIB),
)
_packed("a zstd bomb of empty lines", "input.jsonl.zst", lambda: _zstd(b"\n" * (256 * MIB)))
_stream(
    "a gzip bomb before a good line",
    "input.jsonl.gz",
    lambda: _zeros(64 * MIB) + _gzipped(b"\n" + LAST.encode()),
    _BAD,
)
_stream(
    "gzip with a name of a megabyte",
    "input.jsonl.gz",
    lambda: (
        b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (8 * MIB) + b"\0" + _gzipped(LAST.encode())[10:]
    ),
    r"added 1;",
)
_packed("a zstd bomb of 128 MiB", "input.jsonl.zst", lambda: _zstd(bytes(128 * MIB)))
_packed(
    "a zstd frame that claims 2^60 bytes",
    "input.jsonl.zst",
    lambda: b"\x28\xb5\x2f\xfd\xc0\x58" + struct.pack("<Q", 1 << 60) + b"\x0b\x00\x00x",
)
_packed(
    "a zstd frame with a window of 2 TiB",
    "input.jsonl.zst",
    lambda: b"\x28\xb5\x2f\xfd\x00\xf0\x02\x00\x00",
)


def _csv(name: str, body: Callable[[], str], ends: str, *, last: bool = True) -> None:
    def content() -> bytes:
        return ("key,text\n" + body() + (LAST_CSV if last else "")).encode()

    _stream(name, "input.csv", content, ends, last=last)


_csv(
    "a quote that never closes",
    lambda: 'k,"' + "line\n" * 400_000,
    r"399,999 more lines",
    last=False,
)
_csv("a quoted field of 8 MiB", lambda: 'k,"' + ("x" * 1000 + "\n") * 8000 + '"\n', _BAD)
_csv("a field of four million quotes", lambda: 'k,"' + '""' * (900_000) + '"\n', _SHORT)
_csv("a million columns", lambda: "," * MIB + "\n", _BAD)
_csv("fifty thousand bad rows", lambda: '"a"b,c\n' * 50_000, r"bad 50,000;")
_csv("nothing but quotes", lambda: '"' * 1_000_001 + "\n", r"is no CSV: unexpected end", last=False)
_csv("NULs in every cell", lambda: "k,a\0b\n" + "k2,\0\0\n", r"read 3")
_packed(
    "a header of a million columns",
    "input.csv",
    lambda: b"," * MIB + b"\n" + LAST_CSV.encode(),
    _UNREADABLE,
)
_packed("one name twice", "input.tsv", lambda: b"key\tkey\ttext\nk\tk\tt\n")
_packed("a byte order mark and nothing", "input.csv", lambda: b"\xef\xbb\xbf", r"read 0")
_packed("a text file of 64 MiB", "input.txt", lambda: b"word " * (13 * MIB))
_stream(
    "NULs", "input.log", lambda: b"\0" * MIB + b"\nx\n", r"read 2", "--format=lines", last=False
)


# Directories.


def _directory(name: str, build: Callable[[Path], None], ends: str) -> None:
    def make(folder: Path) -> None:
        inside = folder / "input"
        inside.mkdir()
        (inside / "zz-last.txt").write_text(
            "the last document of this directory is still read well"
        )
        build(inside)

    INPUTS[name] = Hostile(
        make, "ingest", ends, {"file": "input", "arguments": (), "last": "zz-last.txt"}
    )


def _loops(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "up").symlink_to("..")
    (folder / "self").symlink_to(".")


def _odd_files(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.jsonl.gz")
    for name in ("zero", "tty", "random"):
        (folder / f"{name}.txt").symlink_to(f"/dev/{name}")


def _odd_names(folder: Path) -> None:
    text = b"a document of more than eight words whose name is rather odd"
    for name in (
        b"a\x1b[2Jb.txt",
        b"c\nd.txt",
        b"\xff\xfe.txt",
        b"e\tf.txt",
        "\u202egnp.txt".encode(),
        b"=cmd.txt",
        b"-rf.txt",
    ):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(text)


def _deep(folder: Path) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(900):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


_directory("links in circles", _loops, _NOT_READ.format(4))
_directory("pipes and devices", _odd_files, _NOT_READ.format(3))
_directory("names with control bytes", _odd_names, r"added 7, .*bad 1;")
_directory("a tree of 900 folders", _deep, r"added 1;")


# Texts, as a crawler gives them to a recipe; a second text of the batch must get its fingerprint.


def _text(
    name: str, text: Callable[[], str], ends: str = r"fine|short|error: found a ", *recipes: str
) -> None:
    def make(folder: Path) -> None:
        (folder / "text").write_bytes(text().encode("utf-8", "surrogatepass"))

    INPUTS[name] = Hostile(make, "text", ends, {"recipes": recipes or ("tags", "char-4")})


# What cleaning may find hard; its tests give these to each step alone.
HARD = {
    "combining marks": "a" + "\u0301" * 400_000,
    "marks that reorder": "a" + "\u0323\u0301" * 200_000,
    "marks hidden in marks": "a" + "\u0f73" * 400_000,
    "marks between invisible characters": "a" + "\u0301\u200b\u0323" * 130_000,
    "marks after every letter": "a\u0301\u0323" * 130_000,
    "voiced sound marks": "ｶ" + "ﾞ" * 400_000,
    "hangul vowels": "\u1100" + "\u1161" * 400_000,
    "growing ligatures": "\ufdfa" * 50_000,
    "soft hyphens": "\u00ad" * 400_000,
    "one letter": "x" * 400_000,
    "one ideograph": "中" * 400_000,
    "one emoji": "😀" * 400_000,
    "one NUL": "\x00" * 400_000,
    "one lone surrogate": "\ud800" * 400_000,
    "less-than signs": "<" * 400_000,
    "open tags": "<a " * 100_000,
    "open comments": "<!--" * 100_000,
    "closed comments": "-->" * 100_000,
    "half-open comments": "<!-" * 100_000,
    "open scripts": "<script" * 100_000,
    "scripts in scripts": "<script>" * 60_000,
    "closing scripts": "</script" * 60_000,
    "one endless tag": "<a" + " x" * 200_000,
    "quotes": '<a href="' * 50_000,
    "ampersands": "&" * 400_000,
    "a reference of many digits": "&#" + "9" * 400_000 + ";",
    "a hexadecimal reference of many digits": "&#x" + "f" * 400_000 + ";",
    "many references of many digits": ("&#" + "1" * 5_000 + ";") * 80,
    "unknown references": "&abcdefghijklmnopqrstuvwxyzabcdefghijkl" * 10_000,
    "references to references": "&amp;" * 80_000,
    "white space": " \t\n" * 130_000,
    "hyphens": "-" * 400_000,
    "hyphens and spaces": "a-" + " " * 400_000 + "- " * 100_000,
    "line ends": "a-\n" * 130_000,
    "underscores": "_" * 400_000,
    "comments": "// a\n" * 80_000 + "/",
    "slashes and spaces": "/* */ " * 60_000 + " " * 100_000 + "/*" * 60_000,
}
for _name, _hard in HARD.items():
    _text(_name, lambda hard=_hard: hard)

_TOO_LARGE = r"error: found a text of [\d,]+ bytes.*, expected at most [\d,]+"
_text("one word of 50 MB", lambda: "a" * 50_000_000, _TOO_LARGE)
_text("a text just below the limit", lambda: _letters(LARGEST), "fine|short")
_text("different words only", lambda: _words(LARGEST), "fine")
_text("rare ideographs in windows", lambda: _han(LARGEST // 3), "fine", "char-4")
_text("rare ideographs", lambda: _han(LARGEST // 6), "fine", "web", "jieba")
_text("too many ideographs", lambda: _han(LARGEST // 6 + 1), _TOO_LARGE, "web", "jieba")
_text("ideographs one by one", lambda: " ".join(_han(LARGEST // 7)), "fine")
_text("one ideograph", lambda: "的" * (LARGEST // 6), "short", "web", "jieba")
_text("ideographs between letters", lambda: "中a" * (LARGEST // 7), "short")
_text("windows as strings", lambda: _letters(LARGEST // 2), "fine|short", "simhash-py")
_text("too many windows as strings", lambda: _letters(LARGEST // 2 + 1), _TOO_LARGE, "simhash-py")
_text("windows of a hundred words", lambda: _words(LARGEST // 50), "fine", "n-100")
_text("too many windows of a hundred words", lambda: _words(LARGEST), _TOO_LARGE, "n-100")
_text("letters that grow when folded", lambda: "\u0390" * MIB, r"short|error: found a cleaned text")
_text(
    "characters beyond the first plane",
    lambda: "".join(chr(0x20000 + n % 40_000) for n in range(LARGEST // 4)),
    "fine",
)
_text(
    "a tag of 40,000 attributes",
    lambda: "<p " + " ".join(f'a{n}="{n}"' for n in range(40_000)) + ">text",
    "fine|short",
)
_text(
    "elements 150,000 deep", lambda: "<div>" * 150_000 + "text" + "</div>" * 150_000, "fine|short"
)
_text(
    "a title of rare ideographs",
    lambda: _han(2_000),
    r"error: found [\d,]+ rare characters to tag",
    "tagged-title",
)
_text("comments of code that never end", lambda: "/*" * (LARGEST // 4), "short", "submissions")
_text("quotes in code", lambda: '"' * (LARGEST // 2), "short|fine", "submissions")
_text("backslashes in code", lambda: "\\" * (LARGEST // 4), "short|fine", "submissions")
_text(
    "too many tokens", lambda: "(" * (LARGEST // 2), r"error: found a cleaned text", "submissions"
)
_text("a title of a hundred rare ideographs", lambda: "\u9f9d" * 100, "fine", "tagged-title")
_text("a title just short enough", lambda: "的一是不了在人有我他" * 500, "fine", "tagged-title")
_text(
    "a title that is too long to tag",
    lambda: _han(5_001),
    r"error: found 5,001 characters to tag",
    "tagged-title",
)
_text("unknown words for jieba's model", lambda: _han(LARGEST // 24), "fine", "jieba-hmm")


# Recipes as TOML.


def _toml(
    name: str,
    content: Callable[[], bytes],
    ends: str = "error: .*; hint: .",
    **files: Callable[[], bytes],
) -> None:
    def make(folder: Path) -> None:
        (folder / "hostile.toml").write_bytes(content())
        for file, made in files.items():
            (folder / file).write_bytes(made())

    INPUTS[name] = Hostile(make, "toml", ends)


_toml("TOML of 100,000 brackets", lambda: b"a = " + b"[" * 100_000)
_toml("TOML of nested tables", lambda: b"a = " + b"{a=" * 50_000)
_toml("a TOML key of 20,000 parts", lambda: b"a" + b".a" * 20_000 + b" = 1")
_toml("a TOML number of 5,000 digits", lambda: b"bits = " + b"9" * 5_000)
_toml("a TOML number of 4,000 digits", lambda: b"bits = " + b"9" * 4_000)
_toml("padding of a billion", lambda: b'[hash]\nby = "multiply-xor"\npad = 1000000000')
_toml(
    "a weight of 4,000 digits",
    lambda: b'segment = "jieba-tags"\n[weights]\ntags = {n = ' + b"9" * 4_000 + b"}",
)
_toml("a weight of 1e308", lambda: b'segment = "jieba-tags"\n[weights]\ntags = {n = 1e308}')
_toml("windows of a billion", lambda: b"[grams]\nn = 1000000000")
_toml("TOML of 64 MiB", lambda: bytes(64 * MIB))
_toml(
    "a megabyte of stop words in a list",
    lambda: b"[grams]\nstop_words = [" + b'"a",' * 250_000 + b"]",
    "fine",
)
_toml(
    "stop words of 64 MiB",
    lambda: b'[grams]\nstop_words = "words"',
    words=lambda: b"w " * (32 * MIB),
)
_toml(
    "four megabytes of stop words",
    lambda: b'[grams]\nstop_words = "words"',
    "fine",
    words=lambda: _words(4 * MIB - 10).encode(),
)
_toml("stop words from an endless device", lambda: b'[grams]\nstop_words = "/dev/zero"')
_toml("an idf table from an endless device", lambda: b'[weights]\nidf = "/dev/zero"')
_toml("a secret from an endless device", lambda: b'[hash]\nsecret_file = "/dev/zero"')
_toml(
    "an idf table of 64 MiB",
    lambda: b'[weights]\nidf = "table"',
    table=lambda: b"\t1\n" + b"a\t1\n" * (16 * MIB),
)
for _lines, _ends in ((524_280, "fine"), (MIB, "error: .*; hint: .")):
    _toml(
        f"an idf table of {_lines:,} lines",
        lambda: b'[weights]\nidf = "table"',
        _ends,
        table=lambda count=_lines: b"\t1\n" + "".join(f"{n:x}\t1\n" for n in range(count)).encode(),
    )
_toml(
    "an idf value of 1e308", lambda: b'[weights]\nidf = "table"', table=lambda: b"\t1\na\t1e308\n"
)
_toml(
    "an idf value that is no number",
    lambda: b'[weights]\nidf = "table"',
    table=lambda: b"\t1\na\tnan\n",
)


def _secret_pipe(folder: Path) -> None:
    (folder / "hostile.toml").write_bytes(b'[hash]\nsecret_file = "pipe"')
    os.mkfifo(folder / "pipe", 0o600)


INPUTS["a secret from a pipe without a writer"] = Hostile(
    _secret_pipe, "toml", "error: .*; hint: ."
)


# Bytes of the store, as somebody could forge them with a checksum that is right.


def _stored(name: str, kind: str, body: Callable[[], bytes]) -> None:
    options = {"kind": kind}
    INPUTS[name] = Hostile(
        _file("bytes", body), "stored", r"fine|DamagedError|NotADatabaseError|FormatError", options
    )


_stored("metadata of empty lists", "meta", lambda: b"\xdc\xff\xf0" + b"\x90" * 0xFFF0)
for _mib in (3, 32):
    _stored(
        f"a header of {_mib} MiB of empty lists",
        "header",
        lambda size=_mib * MIB: b"\x81\xa5magic\xdd" + struct.pack(">I", size) + b"\x90" * size,
    )
_stored("a header whose feature is a list", "header", lambda: b"\x81\xa8features\x91\x91\x01")
_stored(
    "a header of nested maps", "header", lambda: b"\x81\xa5magic" + b"\x81\xa1a" * 20_000 + b"\xc0"
)
