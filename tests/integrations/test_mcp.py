"""The Model Context Protocol: what its messages are answered with, and the command at a pipe."""

import json
import subprocess
import sys

import pytest

import fpdb
from fpdb.integrations import mcp

TEXT = (
    "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more than "
    "last year. Their young will fly before the summer is over, and begin the long journey south."
)


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "memory.fpdb") as database:
        yield database


def request(number, method, **parameters):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


def tool(name, **arguments):
    return request(1, "tools/call", name=name, arguments=arguments)


def talk(db, *messages):
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    return list(mcp.answers(db, lines))


def results(db, *messages):
    answers = talk(db, *messages)
    for answer in answers:
        [content] = answer["result"]["content"]
        assert json.loads(content["text"]) == answer["result"]["structuredContent"]
    return [answer["result"]["structuredContent"] for answer in answers]


def test_a_client_learns_what_there_is(db):
    begin = request(0, "initialize", protocolVersion="2025-03-26", capabilities={})
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    first, newer, pong, listed = talk(
        db,
        begin,
        ready,
        request("a", "initialize", protocolVersion="2099-01-01"),
        request(2, "ping"),
        request(3, "tools/list"),
    )
    assert first["id"] == 0
    assert first["result"]["protocolVersion"] == "2025-03-26"
    assert first["result"]["capabilities"] == {"tools": {}}
    assert "doesn't find paraphrases" in first["result"]["instructions"]
    assert (newer["id"], newer["result"]["protocolVersion"]) == ("a", "2025-06-18")
    assert pong == {"jsonrpc": "2.0", "id": 2, "result": {}}
    needed = {tool["name"]: tool["inputSchema"]["required"] for tool in listed["result"]["tools"]}
    assert needed == {"check": ["key", "text"], "query": ["text"], "delete": ["key"], "stats": []}


def test_a_text_is_stored_once_found_and_deleted(db):
    added, copy, found, stats, gone, again, none = results(
        db,
        tool("check", key="a", text=TEXT, meta={"topic": "birds"}),
        tool("check", key="b", text=TEXT + " Indeed."),
        tool("query", text=TEXT, similarity=1, limit=None),
        tool("stats"),
        tool("delete", key="a"),
        tool("delete", key="a"),
        tool("query", text=TEXT),
    )
    assert added == {"key": "a", "status": "added", "duplicate_of": []}
    [original] = copy["duplicate_of"]
    assert copy["status"] == "duplicate"
    assert (original["key"], original["meta"]) == ("a", {"topic": "birds"})
    assert found["matches"] == [{"key": "a", "similarity": 1.0, "meta": {"topic": "birds"}}]
    assert (stats["documents"], stats["keys"]) == (1, "text")
    assert (gone, again) == ({"deleted": True}, {"deleted": False})
    assert none == {"matches": [], "complete": True}


def test_keys_may_be_integers(tmp_path):
    with fpdb.create(tmp_path / "numbers", keys="integer") as db:
        added, refused = talk(
            db, tool("check", key="17", text=TEXT), tool("check", key="9" * 5000, text=TEXT)
        )
        assert added["result"]["structuredContent"]["status"] == "added"
        assert refused["result"]["isError"]
        assert len(refused["result"]["content"][0]["text"]) < 300
        assert list(db) == [17]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b'{"id": NaN, "method": "ping"}', -32700),
        (b'{"id": 1e999, "method": "ping"}', -32700),
        ([], -32600),
        (request(5, "resources/list"), -32601),
        ({"id": 5, "method": []}, -32601),
        ({"id": 5, "method": "tools/call", "params": [1]}, -32602),
        (request(5, "tools/call", name="drop"), -32602),
        (request(5, "tools/call", name=[]), -32602),
    ],
)
def test_what_is_no_request_is_refused_and_ends_nothing(db, message, code):
    refused, pong = talk(db, message, request(6, "ping"))
    assert refused["error"]["code"] == code
    assert refused["error"]["message"]
    assert refused["id"] == (5 if isinstance(message, dict) else None)
    assert pong["result"] == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"key": "a"},
        {"key": 1, "text": TEXT},
        {"key": "a", "text": TEXT, "txt": ""},
        {"key": "a", "text": TEXT, "meta": "x" * 70_000},
        {"key": "", "text": TEXT},
    ],
)
def test_a_model_is_told_what_cures_its_call(db, arguments):
    [answer] = talk(db, tool("check", **arguments))
    assert answer["result"]["isError"]
    [content] = answer["result"]["content"]
    assert len(content["text"].splitlines()) == 2
    assert not list(db)


def test_a_similarity_that_is_no_float_is_told(db):
    [answer] = talk(db, tool("query", text=TEXT, similarity=10**400))
    assert "at most 1" in answer["result"]["content"][0]["text"]


def test_notifications_get_no_answer(db):
    assert talk(db, {"method": "notifications/cancelled"}, {"method": "unknown"}, b"\n") == []


@pytest.mark.process
def test_the_command_answers_each_line_at_once(tmp_path):
    command = [sys.executable, "-m", "fpdb", "mcp", str(tmp_path / "memory.fpdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for key in "ab":
            line = json.dumps(tool("check", key=key, text=f"{TEXT}\u2028 文"))
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            status = answer["result"]["structuredContent"]["status"]
            assert status == {"a": "added", "b": "duplicate"}[key]
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
