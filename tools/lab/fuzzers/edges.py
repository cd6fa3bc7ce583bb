"""Hostile values in each option of each command, and in each field of each page and call."""

import asyncio
import contextlib
import io
import json
import os
import random
import shutil
import sys
from functools import cache
from unittest import mock
from urllib.parse import quote_from_bytes

import asgi

import fpdb
from fpdb.cli import main
from fpdb.cli.app import program
from fpdb.integrations import server

TEXT = "Red kites nest above the quarry again: wardens counted {} pairs in April, and many more."
# An argument that is run as a program.
_LEFT_OUT = {"command"}
_GOOD = {"path": "a.fpdb", "db": "a.fpdb", "database": "a.fpdb", "text": "some words of a text"}
_FILES = ("a.jsonl", "a.tsv", "a.toml", "a.warc", "a.parquet", "a.txt", "folder", "-")
_NUMBERS = ("0", "1", "-1", "3", "0.5", "1.5", "64", "1e400", "nan", "-inf", "9" * 20, "9" * 400)
_PATHS = (
    *("a.fpdb", "new", "none/new", "a.fpdb/new", ".", "/dev/null", "none/", "loop"),
    *("new.jsonl", "new.parquet", "new.csv", "new.html", "no.zst", "new.fpdb.jsonl", "b" * 300),
)
_STRANGE = (
    *("", " ", "\0", "a\0b", "\udcff", "\u202e\x1b[31m", "中文", "x" * 100_000, "--", "-"),
    *("%ff", "=", ",", "a,b", ":", "first", "newest:", "hex", "jsonl", "web", "[", "{}"),
    "127..0.1",
)
VALUES = (*_FILES, *_NUMBERS, *_PATHS, *_STRANGE)
_FINE = {0, 1, 2, 3, 4, 130}


class Choices:
    """What bytes choose; nothing more, when they are used up, than the first of each."""

    def __init__(self, data):
        self._data = iter(data)

    def number(self, below):
        return next(self._data, 0) % below

    def one(self, values):
        return values[self.number(len(values))]

    def value(self):
        """Return a hostile value, or a few of the bytes as one; no path leads out of the folder."""
        if self.number(8):
            return self.one(VALUES)
        text = bytes(self.number(256) for _ in range(self.number(12)))
        return text.decode("utf-8", "surrogateescape").replace("/", "").lstrip(".")


@cache
def commands():
    def found(group, words):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from found(command, (*words, name))
            else:
                parameters = [each for each in command.params if each.name not in _LEFT_OUT]
                yield (*words, name), parameters

    return list(found(program(), ()))


@cache
def _prepare(folder):
    """Make what values name."""
    text = [TEXT.format(number) for number in range(5)]
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    lines = [json.dumps({"key": f"k{n}", "text": t, "n": n}) + "\n" for n, t in enumerate(text)]
    (folder / "a.jsonl").write_text("".join(lines))
    (folder / "folder" / "b.jsonl").write_text("".join(lines))
    (folder / "a.tsv").write_text("key\ttext\n" + "".join(f"k{t}\t{t}\n" for t in text))
    (folder / "a.txt").write_text(text[0])
    (folder / "a.toml").write_text('base = "web"\n[weights]\nidf = "a.txt"\n')
    (folder / "a.warc").write_bytes(b"WARC/1.0\r\nContent-Length: 9\r\n\r\nx")
    (folder / "a.parquet").write_bytes(b"PAR1 no table PAR1")


def _end(*_, **__):
    raise SystemExit(0)


def _database(folder):
    """Make the database again if it was removed or emptied."""
    with contextlib.suppress(fpdb.FpdbError), fpdb.open(folder / "a.fpdb") as database:
        if len(database):
            return
    path = folder / f"{random.getrandbits(60):x}.fpdb"
    with fpdb.create(path) as database:
        for number in range(5):
            database.add(f"k{number}", TEXT.format(number), {"n": number})
    shutil.rmtree(folder / "a.fpdb", ignore_errors=True)
    path.rename(folder / "a.fpdb")


def arguments_of(choices):
    """Choose a command, and values for some of its options and all of its arguments."""
    words, parameters = choices.one(commands())
    found = []
    for parameter in parameters:
        name, flag = parameter.name, getattr(parameter, "is_flag", False)
        if parameter.param_type_name == "argument":
            usual = _GOOD.get(name, "a.jsonl")
            found.append(choices.value() if choices.number(3) else usual)
        elif parameter.required or not choices.number(6):
            found.append(parameter.opts[0])
            found += [] if flag else [choices.value()]
    return [*words, *found]


def run_command(folder, arguments, stdin=b""):
    """Run the command line here; return its exit code, and what it printed."""
    streams = [io.TextIOWrapper(io.BytesIO(stdin), "utf-8")]
    streams += [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr, os.getcwd()
    os.chdir(folder)
    sys.argv, (sys.stdin, sys.stdout, sys.stderr) = ["fpdb", *arguments], streams
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr, _ = before
        os.chdir(before[-1])
    for stream in streams[1:]:
        stream.flush()
    return code, *(stream.buffer.getvalue().decode() for stream in streams[1:])


def check_commands(folder, data):
    """Any values are an outcome with an exit code that is documented, and no traceback."""
    folder = folder / "commands"
    folder.mkdir(exist_ok=True)
    _prepare(folder)
    _database(folder)
    choices = Choices(data)
    arguments = arguments_of(choices)
    given = choices.one((b"", b"{}\n", b"\xff\n", b"a\tb\n"))
    with mock.patch.object(server, "serve", _end):  # which would go on for ever
        code, _, said = run_command(folder, arguments, given)
    assert code in _FINE, (arguments, code, said)
    assert code != 3 or "error: " in said, (arguments, said)
    assert "Traceback" not in said, (arguments, said)


_PAGES = ("", "overview", "groups", "group", "compare", "documents", "document", "near", "no")
_POSTED = ("near", "delete", "again", "no")
_FIELDS = (
    *("key", "other", "of", "page", "prefix", "after", "kind", "text", "match", "which", "sure"),
    *("host", "order", "least_size", "most_size", "least_share", "most_share", "least_day"),
    *("most_day", "token"),
)
_CHOSEN = ("k0", "k1", "marked", "others", "fingerprint", "html", "2026-11-23", "1", "3", "new")
_CALLS = (
    *("POST /v1/check", "POST /v1/query", "GET /v1/documents", "DELETE /v1/documents"),
    *("GET /v1/stats", "GET /healthz", "GET /metrics", "GET /openapi.json", "PUT /"),
)
_NAMES = ("key", "text", "html", "meta", "fingerprint", "k", "limit", "similarity", "if_near", "x")
_JSON = (
    *(None, True, 0, -1, 1.5, 1e308, 1 << 64, -(1 << 80), "", "k0", "\ud800", "\0", "f" * 16),
    *([], [[]], {}, {"a": "\udcff"}, "x" * 100_000, TEXT),
)
_TYPES = ("application/json", "application/x-ndjson", "text/plain", "application/json; charset=x")


class _Served:
    """The application over a database of each kind of keys, with its pages."""

    def __init__(self, path, keys):
        self.keys = keys
        self.loop = asyncio.new_event_loop()
        self.database = fpdb.create(path, keys=keys)
        self.fill()
        self.explorer = fpdb.Explorer(self.database, write=True)
        self.app = server.app(self.database, explorer=self.explorer)

    def fill(self):
        for number in range(5):
            key = f"k{number}" if self.keys == "text" else (1 << 64) - 1 - number
            self.database.add(key, TEXT.format(number // 2), {"n": number})

    def ask(self, method, path, query=b"", body=b"", media=""):
        headers = {"host": "127.0.0.1:7373", "content_length": len(body)}
        headers |= {"content_type": media} if media else {}
        asked = asgi.call(self.app, method, f"{path}?{query.decode()}", body, **headers)
        answer = self.loop.run_until_complete(asked)
        return answer.status, answer.body


@cache
def _served(folder, keys):
    return _Served(folder / f"{keys}.fpdb", keys)


def form_of(choices):
    """Choose fields and values, as a form or the address of a page sends them."""
    pairs = []
    for _ in range(choices.number(5)):
        name = choices.one(_FIELDS)
        value = choices.one(_CHOSEN) if choices.number(2) else choices.value()
        encoded = quote_from_bytes(value.encode("utf-8", "surrogatepass"))
        pairs.append(f"{name}={'%ff' if choices.number(20) == 1 else encoded}")
    return "&".join(pairs).encode()


def body_of(choices):
    """Choose a body of a call: an object, several, or a few bytes."""
    if not choices.number(8):
        return choices.value().encode("utf-8", "surrogatepass")
    objects = [
        {choices.one(_NAMES): choices.one(_JSON) for _ in range(choices.number(5))}
        for _ in range(choices.number(3) + 1)
    ]
    return "\n".join(map(json.dumps, objects)).encode()


def check_visits(folder, data):
    """Any fields and bodies have an answer that isn't an error of the server."""
    choices = Choices(data)
    served = _served(folder, choices.one(("text", "integer")))
    if len(served.database) < 4:
        served.fill()
    kind = choices.number(3)
    if kind == 0:
        asked = "GET", f"/explore/{choices.one(_PAGES)}", form_of(choices)
    elif kind == 1:
        _, page = served.ask("GET", "/explore/near")
        token = page.partition(b'name="token" value="')[2].partition(b'"')[0]
        form = b"&".join([form_of(choices), b"token=" + token])
        media = "application/x-www-form-urlencoded"
        asked = "POST", f"/explore/{choices.one(_POSTED)}", b"", form, media
    else:
        method, path = choices.one(_CALLS).split()
        asked = method, path, form_of(choices), body_of(choices), choices.one(_TYPES)
    status, answer = served.ask(*asked)
    assert status < 500, (asked, status, answer[:1000])


SEEDS = {
    "commands": [bytes([number, *range(1, 40, 3)]) for number in range(40)],
    "visits": [bytes([number % 2, number % 3, *range(number, 40)]) for number in range(40)]
    + [bytes([keys, 0, page, 0]) for keys in range(2) for page in range(len(_PAGES))],
}
