"""The server as a process: signals, sockets, TLS, and clients that don't keep to the rules."""

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from damaged import spoil_bands
from numbered import text_of

import fpdb

pytestmark = pytest.mark.process

TEXT = (
    "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more than "
    "last year. Their young will fly before the summer is over, and begin the long journey south."
)
# A server that waits for nothing for long.
HASTY = """
import sys, fpdb
from fpdb.integrations import server
from fpdb.integrations.server import serving
serving._HEAD_SECONDS = 1
with fpdb.create(sys.argv[1]) as database:
    server.serve(
        server.app(database, limits=server.Limits(seconds=0.6, document=100_000)),
        port=0,
        on_start=lambda url: print("serving at", url, file=sys.stderr, flush=True),
    )
"""


def port_of(process):
    """Wait until a server listens; return its port."""
    for line in process.stderr:
        if found := re.search(rb"serving.* at https?://127\.0\.0\.1:([0-9]+)", line):
            return int(found[1])
    raise AssertionError(process.wait())


def ended(process, number=signal.SIGTERM):
    process.send_signal(number)
    return process.wait(60)


@contextlib.contextmanager
def connected(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        yield connection


def check(connection, key, text=TEXT, **headers):
    body = json.dumps({"key": key, "text": text})
    connection.request("POST", "/v1/check", body, headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


def test_sigterm_answers_what_was_accepted(start, path):
    process = start("serve", path, "--port", 0)
    port = port_of(process)
    statuses = []

    def crawl(name):
        with connected(port) as connection, contextlib.suppress(OSError, http.client.HTTPException):
            for number in range(10_000):
                key = f"{name}/{number}"
                statuses.append((key, check(connection, key, text_of(key))[1]["status"]))

    threads = [threading.Thread(target=crawl, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    with connected(port) as connection:  # which sends lines, and doesn't end
        lines = b'{"key":"x","text":"kites"}\n'
        connection.putrequest("POST", "/v1/check")
        connection.putheader("Content-Type", "application/x-ndjson")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        connection.send(b"%x\r\n%s\r\n" % (len(lines), lines))
        response = connection.getresponse()
        assert json.loads(response.readline()) == {"key": "x", "status": "short"}
        while len(statuses) < 40:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert json.loads(response.read())["status"] == "failed"
    for thread in threads:
        thread.join()
    assert process.wait(60) == 0
    assert {status for _, status in statuses} == {"added"}
    with fpdb.open(path, readonly=True) as db:
        assert {key for key, _ in statuses} <= set(db)
        assert len(db) <= len(statuses) + 1 + len(threads)


def test_sigterm_answers_the_lines_that_are_stored(start, path):
    process = start("serve", path, "--port", 0)
    lines = [json.dumps({"key": f"{n}", "text": text_of(n)}).encode() + b"\n" for n in range(9000)]
    head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    head += f"Content-Length: {sum(map(len, lines))}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(process))) as client:
        client.settimeout(60)
        client.sendall(head.encode() + b"".join(lines[:3000]))
        client.recv(1, socket.MSG_PEEK)
        process.send_signal(signal.SIGTERM)

        def send():
            # The server may close the connection before it is sent all.
            with contextlib.suppress(OSError):
                for line in lines[3000:]:
                    client.sendall(line)

        sender = threading.Thread(target=send)
        sender.start()
        got = b"".join(iter(lambda: client.recv(1 << 16), b""))
        sender.join()
    assert process.wait(60) == 0
    assert got.endswith(b"0\r\n\r\n")
    with fpdb.open(path, readonly=True) as db:
        assert got.count(b'"added"') == len(db) < len(lines)


def test_a_server_ends_when_its_database_is_replaced(start, path, tmp_path):
    process = start("serve", path, "--port", 0)
    port_of(process)
    path.rename(tmp_path / "moved.fpdb")
    assert process.stderr.readline().startswith(b"error: ")
    assert process.poll() is None
    fpdb.create(path, k=5, similarity=None).close()
    assert process.wait(60) == 3
    assert b"error: another database is at " in process.stderr.read()


def test_a_server_says_that_its_database_is_damaged(start, path):
    with fpdb.create(path) as db:
        db.add("a", TEXT)
        spoil_bands(db)
    process = start("serve", path, "--port", 0)
    with connected(port_of(process)) as connection:
        assert check(connection, "b")[0] == check(connection, "c")[0] == 503
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 503
    assert process.stderr.readline() == b"error: the checksum of a page is wrong\n"
    assert process.stderr.readline() == b"hint: run `fpdb check`\n"
    assert ended(process) == 0
    assert b"checksum" not in process.stderr.read()


def test_a_server_goes_on_with_a_compacted_database(start, path):
    process = start("serve", path, "--port", 0)
    with connected(port_of(process)) as connection:
        for number in range(3):
            key = str(number)
            assert check(connection, key, text_of(key))[1]["status"] == "added"
            with fpdb.open(path) as db:
                db.compact()
            connection.request("GET", f"/v1/documents?key={number}")
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["key"]) == (200, key)
            with fpdb.open(path) as db:
                db.compact()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    with fpdb.open(path) as db:
        assert len(db) == 3


def test_a_kill_loses_nothing_that_was_answered(start, path):
    answered = []

    def crawl(port, name):
        with connected(port) as connection, contextlib.suppress(OSError, http.client.HTTPException):
            for number in range(10_000):
                key = f"{name}/{number}"
                status, found = check(connection, key, text_of(key))
                assert (status, found["status"]) == (200, "added")
                answered.append(key)

    for run in range(2):
        process = start("serve", path, "--port", 0)
        port = port_of(process)
        before = len(answered)
        threads = [threading.Thread(target=crawl, args=[port, f"{run}{name}"]) for name in "abcdef"]
        for thread in threads:
            thread.start()
        while len(answered) < before + 60:
            time.sleep(0.01)
        process.kill()
        for thread in threads:
            thread.join()
    with fpdb.open(path) as db:
        assert set(answered) <= set(db)
        assert list(db.check()) == []


def test_clients_that_are_slow_or_lie_cost_nothing_for_long(path):
    process = subprocess.Popen([sys.executable, "-c", HASTY, path], stderr=subprocess.PIPE)
    try:
        port = port_of(process)
        head = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        sent = {
            "nothing": b"",
            "half a head": head,
            "lines that are empty": b"\r\n\r\n",
            "no HTTP": b"\x16\x03\x01\x02\x00",
            "half a body": head + b'Content-Length: 100\r\n\r\n{"key":',
            "no end of lines": head
            + b'Content-Type: application/x-ndjson\r\nContent-Length: 99\r\n\r\n{"key":"a"}\n',
            "an endless head": head + b"A: " + b"x" * 100_000,
            "a body that is too long": head + b"Content-Length: 1000000\r\n\r\n" + b"x" * 200_000,
            "less than it says, then a request": head
            + b'Content-Length: 9\r\n\r\n{"key":"a","text":"kites"}GET / HTTP/1.1\r\n\r\n',
        }
        expected = {
            "no HTTP": b"HTTP/1.1 400",
            "half a body": b"HTTP/1.1 503",
            "no end of lines": b"no line was complete for 0.6 seconds",
            "a body that is too long": b"HTTP/1.1 413",
            "less than it says, then a request": b"HTTP/1.1 400",
        }
        clients = {name: socket.create_connection(("127.0.0.1", port)) for name in sent}
        for name, client in clients.items():
            client.settimeout(20)
            with contextlib.suppress(OSError):  # it may be refused before all is sent
                client.sendall(sent[name])
        with connected(port) as connection:
            assert check(connection, "z")[0] == 200
        for name, client in clients.items():
            got = bytearray()
            if name in {"half a body", "no end of lines"}:  # which may go on with another request
                while expected[name] not in got:
                    got += client.recv(1 << 16) or pytest.fail(f"{name}: {bytes(got)}")
            else:
                with contextlib.suppress(ConnectionError):
                    while part := client.recv(1 << 16):
                        got += part
            assert expected.get(name, b"") in got, (name, bytes(got))
            client.close()
        with connected(port) as connection:
            assert check(connection, "z")[1]["status"] == "unchanged"
        assert ended(process) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def started(start, path, place):
    """Start a server on a Unix socket, and wait until it listens."""
    process = start("serve", path, "--unix", place)
    assert any(b"serving" in line for line in process.stderr)
    return process


def test_a_unix_socket_is_for_its_owner(start, run, tmp_path, path):
    place = tmp_path / "fpdb.sock"

    first = started(start, path, place)
    assert place.stat().st_mode & 0o002 == 0
    other = run("serve", path, "--unix", place)
    assert other.code == 3
    assert re.search("Address already in use\nhint: name a new path", other.err)
    first.kill()
    first.wait()
    assert place.exists()
    second = started(start, path, place)  # in the place of the one that was killed
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(place))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: fpdb\r\nConnection: close\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert ended(second, signal.SIGINT) == 130
    assert not place.exists()


def test_a_server_leaves_the_socket_of_the_next_one(start, tmp_path, path):
    place = tmp_path / "fpdb.sock"

    first = started(start, path, place)
    with socket.socket(socket.AF_UNIX) as client:  # whose request is under way at the end
        client.connect(str(place))
        client.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{")
        time.sleep(0.5)
        first.send_signal(signal.SIGTERM)
        while place.exists():
            time.sleep(0.01)
        second = started(start, path, place)
    assert first.wait(60) == 0
    assert place.is_socket()
    place.unlink()
    place.write_text("a file of somebody else")
    assert ended(second) == 0
    assert place.exists()


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("write 0123456789abcdef\n")
    file.chmod(0o600)
    return file


def test_the_address_of_an_explorer_is_no_argument(start, path, tmp_path, monkeypatch):
    fpdb.create(path).close()
    browser = tmp_path / "browser"
    browser.write_text(
        '#!/bin/sh\nfor last; do :; done\necho "$@" > "$0.got"; '
        'cat "${last#file://}" > "$0.page"; stat -c %a "$(dirname "${last#file://}")" > "$0.mode"\n'
    )
    browser.chmod(0o700)
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setenv("BROWSER", str(browser))
    process = start("explore", path)
    address = process.stdout.readline().decode().strip()
    mode = browser.with_suffix(".mode")
    while not (mode.exists() and mode.read_text()):
        time.sleep(0.01)
    got = browser.with_suffix(".got").read_text()
    assert got.startswith("file://")
    assert "token" not in got
    assert f"url={address}" in browser.with_suffix(".page").read_text()
    assert mode.read_text() == "700\n"  # so no other user reads what is in the folder
    page = Path(got.strip().removeprefix("file://"))
    assert ended(process) == 0
    assert not page.parent.exists()


@pytest.fixture
def certified(tmp_path):
    """Return the files of a certificate of 127.0.0.1 and its key."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=False, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl can't make a certificate")
    key.chmod(0o600)
    return certificate, key


def test_other_hosts_need_a_token(start, run, path, tokens, certified):
    refused = run("serve", path, "--host", "0.0.0.0", "--port", 0)
    assert refused.code == 3
    assert "hint: require tokens" in refused.err
    certificate, key = certified
    process = start(
        "serve", path, "--port", 0, "--tls-cert", certificate, "--tls-key", key,
        "--token-file", tokens,
    )  # fmt: skip
    port = port_of(process)
    plain = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]  # without a handshake
    large = json.dumps({"key": "b", "text": TEXT, "meta": "x" * 60_000}).encode() + b"\n"
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusted = ssl.create_default_context(cafile=certificate)
        trusted.minimum_version = trusted.maximum_version = version
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted, timeout=30)
        with contextlib.closing(connection):
            assert check(connection, "a")[0] == 401
            headers = {"authorization": "Bearer 0123456789abcdef"}
            assert check(connection, "a", **headers)[0] == 200
            headers["content-type"] = "application/x-ndjson"
            connection.request("POST", "/v1/check", large * 30, headers)
            assert len(connection.getresponse().read().splitlines()) == 30
    for client in plain:
        client.close()
    assert ended(process) == 0


def test_sighup_reads_the_tokens_again_and_ends_nothing(start, path, tokens):
    process = start("serve", path, "--port", 0, "--token-file", tokens)
    port = port_of(process)
    first, second = "Bearer 0123456789abcdef", "Bearer fedcba9876543210"

    def status(token):
        # A refused request isn't read to its end, and its connection may end.
        with connected(port) as connection:
            return check(connection, "a", authorization=token)[0]

    def reload():
        process.send_signal(signal.SIGHUP)
        return process.stderr.readline()

    assert (status(first), status(second)) == (200, 401)
    assert b"refused an unknown token" in process.stderr.readline()
    tokens.write_text("write fedcba9876543210\n")
    assert b"read the tokens" in reload()
    assert (status(first), status(second)) == (401, 200)
    # One that can't be used changes nothing.
    tokens.write_text("write short\n")
    assert b"error: " in reload()
    assert b"hint: " in process.stderr.readline()
    assert (status(first), status(second)) == (401, 200)
    assert ended(process) == 0


def test_sighup_without_tokens_ends_nothing(start, path):
    process = start("serve", path, "--port", 0)
    port = port_of(process)
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        with connected(port) as connection:
            assert check(connection, "a")[0] == 200
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read()
    assert b"fpdb_build_info{" in metrics
    assert b"process_open_fds " in metrics
    assert b"_created" not in metrics  # half of the lines, which no dashboard shows
    assert ended(process) == 0


def test_an_access_log_has_a_line_for_each_request_and_no_secrets(start, path, tokens):
    process = start("serve", path, "--port", 0, "--token-file", tokens, "--access-log")
    port = port_of(process)
    allowed = {"authorization": "Bearer 0123456789abcdef"}
    requests = [
        allowed,
        allowed | {"x-request-id": "of a proxy"},
        allowed | {"x-request-id": "a-1"},
        {},
    ]
    lines = []
    for headers in requests:
        with connected(port) as connection:
            check(connection, "https://a.example/", **headers)
        lines.append(process.stdout.readline())
    with connected(port) as connection:
        connection.request("GET", "/v1/documents?key=secret", headers=allowed)
        connection.getresponse().read()
    lines.append(process.stdout.readline())
    assert ended(process) == 0
    assert process.stdout.read() == b""
    told = [json.loads(line) for line in lines]
    assert [line["status"] for line in told] == [200, 200, 200, 401, 404]
    assert {line["path"] for line in told} == {"/v1/check", "/v1/documents"}
    assert told[2]["id"] == "a-1"
    assert len({line["id"] for line in told} - {"of a proxy"}) == 5
    assert all(line["address"] == "127.0.0.1" and line["seconds"] > 0 for line in told)
    assert b"secret" not in b"".join(lines)
    assert b"0123456789abcdef" not in b"".join(lines)


def test_a_key_is_secret_and_has_no_password(start, run, path, certified):
    certificate, key = certified
    command = ("serve", path, "--port", 0, "--tls-cert", certificate, "--tls-key", key)
    key.chmod(0o644)
    refused = run(*command)
    assert refused.code == 3
    assert "others may read the key" in refused.err
    locked = key.with_name("locked.pem")
    subprocess.run(
        ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", key, "-out", locked],
        check=True, capture_output=True,
    )  # fmt: skip
    locked.chmod(0o600)
    locked.rename(key)
    process = start(*command)  # where nobody can be asked for it
    assert process.wait(60) == 3
    assert b"the key without a password" in process.stderr.read()


@pytest.mark.parametrize("option", ["--port", "--token-file", "--tls-cert"])
def test_what_can_t_be_used_is_an_error_with_a_hint(run, path, tmp_path, option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        value = taken.getsockname()[1] if option == "--port" else tmp_path / "none"
        more = ["--tls-key", tmp_path / "none"] if option == "--tls-cert" else []
        refused = run("serve", path, option, value, *more)
    assert refused.code == 3
    assert not path.exists()  # a new database with nothing in it
    assert "error: " in refused.err
    assert "hint: " in refused.err


@pytest.mark.full
def test_four_thousand_connections_and_another_one(start, path):
    import resource

    needed, (soft, hard) = 6_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < needed:
        pytest.skip(f"{hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        process = start("serve", path, "--port", 0)
        port = port_of(process)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(4000)]
        with connected(port) as connection:
            assert check(connection, "a")[0] == 200
        body = json.dumps({"key": "a", "text": TEXT}).encode()
        request = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
        for client in clients:
            client.settimeout(60)
            client.sendall(request % len(body) + body)
        statuses = {client.recv(1 << 16)[:12] for client in clients}
        assert b"HTTP/1.1 200" in statuses
        assert statuses <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        for client in clients:
            client.close()
        assert ended(process) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.full
def test_calls_at_random_get_the_answers_that_are_described(start, path):
    schemathesis = Path(sys.executable).with_name("schemathesis")
    process = start("serve", path, "--port", 0)
    port = port_of(process)
    with connected(port) as connection:
        connection.request("GET", "/openapi.json")
        described = json.loads(connection.getresponse().read())
    for methods in described["paths"].values():  # the tool can't make lines
        for call in methods.values():
            call.get("requestBody", {"content": {}})["content"].pop("application/x-ndjson", None)
    schema = path.with_name("openapi.json")
    schema.write_text(json.dumps(described))
    # A document may need more than its schema says, so a valid one may be refused.
    done = subprocess.run(
        [schemathesis, "run", schema, "--url", f"http://127.0.0.1:{port}", "--max-examples", "300",
         "--phases", "examples,coverage,fuzzing", "--exclude-checks", "positive_data_acceptance",
         "--no-color"],
        check=False, capture_output=True, text=True, cwd=path.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert ended(process) == 0
    # Texts at random may have tags, of which the server warns once.
    *warnings, last = process.stderr.read().splitlines()
    assert last == b"ended: answered documents are stored"
    assert all(b"tags" in each for each in warnings), warnings
