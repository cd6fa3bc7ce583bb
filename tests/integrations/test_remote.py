"""A crawler whose database is that of a server, which may be away."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time

import pytest

import fpdb
from fpdb.integrations import remote

TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."


@contextlib.contextmanager
def answering(*scripts):
    """Serve on loopback; each request for checks gets the next script, and then the last again."""
    left, requests = list(scripts), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer(200, b'{"keys":"text"}')

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            keys = [json.loads(line)["key"] for line in body.splitlines()]
            requests.append((self.headers["Authorization"], keys))
            script = left.pop(0) if len(left) > 1 else left[0]
            script(self, keys)

        def answer(self, status, body, length=None):
            self.send_response(status)
            self.send_header("Content-Length", len(body) if length is None else length)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def added(handler, keys, status="added"):
    lines = [json.dumps({"key": key, "status": status}).encode() + b"\n" for key in keys]
    handler.answer(200, b"".join(lines))


def broken(handler, keys):
    """Answer the first line, and break the connection."""
    handler.answer(200, json.dumps({"key": keys[0], "status": "added"}).encode() + b"\n", 1000)
    handler.close_connection = True


def busy(handler, keys):
    handler.answer(503, b"{}")


def failed(handler, keys):
    added(handler, keys, "failed")


def refused(handler, keys):
    handler.answer(401, b"no token")


def documents(*keys):
    return [fpdb.Document(key, TEXT) for key in keys]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(remote, "_FIRST_PAUSE", 0.001)


def test_what_has_no_answer_is_sent_again():
    with answering(busy, broken, failed, added) as (address, requests):
        server = remote.Remote(address, "secret")
        found = server.add(documents("a", "b", "c"))
        server.close()
    assert [(each.key, each.status) for each in found] == [
        ("a", "added"), ("b", "added"), ("c", "added")
    ]  # fmt: skip
    assert [keys for _, keys in requests] == [
        ["a", "b", "c"],
        ["a", "b", "c"],
        ["b", "c"],
        ["b", "c"],
    ]
    assert {token for token, _ in requests} == {"Bearer secret"}


def ended(handler, keys):
    """End the connection without an answer, as a server does that was sent nothing for a while."""
    handler.close_connection = True


def test_a_connection_that_the_server_has_ended_is_made_again_at_once(monkeypatch, caplog):
    monkeypatch.setattr(remote, "_FIRST_PAUSE", 60)
    with answering(ended, added) as (address, requests):
        server = remote.Remote(address)
        [outcome] = server.add(documents("a"))
        server.close()
    assert outcome.status == "added"
    assert len(requests) == 2
    assert "Waiting" not in caplog.text


def test_an_impatient_crawler_gets_errors_in_the_end():
    with answering(busy) as (address, requests):
        server = remote.Remote(address, patient=False)
        found = server.add(documents("a", "b"))
        server.close()
    assert len(requests) == remote._TRIES
    assert all(isinstance(each, fpdb.OpenError) for each in found)
    assert len(found) == 2


def test_what_is_refused_is_not_sent_again():
    with answering(refused) as (address, requests):
        server = remote.Remote(address)
        [error] = server.add(documents("a"))
        server.close()
    assert isinstance(error, fpdb.AccessError)
    assert "no token" in str(error)
    assert len(requests) == 1


@pytest.mark.parametrize("address", ["http://", "http://host:1/path", "unix", "ftp://host"])
def test_an_address_says_how_to_reach_the_server(address):
    with pytest.raises(fpdb.InputError, match="unix:PATH"):
        remote.Remote(address)


def test_a_server_that_never_was_there_is_an_error(tmp_path):
    with pytest.raises(fpdb.OpenError, match="doesn't answer"):
        remote.Remote(f"unix:{tmp_path / 'none'}")


@pytest.mark.process
def test_items_wait_for_a_server_that_is_started_again(tmp_path):
    path, place = tmp_path / "crawl.fpdb", tmp_path / "sock"

    def start():
        process = subprocess.Popen(
            [sys.executable, "-m", "fpdb", "serve", path, "--unix", place], stderr=subprocess.PIPE
        )
        assert any(b"serving" in line for line in process.stderr)
        return process

    with fpdb.create(path, passages=True):
        pass
    process = start()
    server = remote.Remote(f"unix:{place}")
    first, bad = server.add([*documents("a"), fpdb.Document("", TEXT)])
    assert first.status == "added"
    assert isinstance(bad, fpdb.InputError)
    ready, near, wide = server.add(
        [
            fpdb.Document("ready", fingerprint=5, meta="of another program"),
            fpdb.Document("near", TEXT, fingerprint=7),
            fpdb.Document("wide", fingerprint=1 << 64),
        ]
    )
    assert (ready.status, near.status, near.matches[0].key) == ("added", "duplicate", "ready")
    assert isinstance(wide, fpdb.InputError)
    asked = {"text": f"He said: {TEXT}", "least": 0.1, "limit": 3}
    with fpdb.open(path, readonly=True) as database:
        [part] = server.passages(**asked)
        assert part == database.passages(**asked)[0]._replace(id=0)
        assert (database["ready"].fingerprint, database["ready"].meta) == (5, "of another program")
    process.kill()
    process.wait()
    process.stderr.close()
    found = []
    waiting = threading.Thread(target=lambda: found.extend(server.add(documents("a", "b"))))
    waiting.start()
    time.sleep(0.05)
    assert not found
    process = start()
    waiting.join(60)
    server.close()
    process.terminate()
    assert process.wait(60) == 0
    process.stderr.close()
    assert [(each.key, each.status) for each in found] == [("a", "unchanged"), ("b", "duplicate")]
    assert found[1].matches[0].key == "a"
