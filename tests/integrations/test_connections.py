"""Connections of HTTP/1 over loopback: what they take, in which order, and what they refuse."""

import asyncio
import contextlib
import json
import socket

import pytest

from fpdb.integrations.server import serving

HOST = b"Host: localhost\r\n"


async def echo(scope, receive, send):
    """Answer with what was asked; to /parts in parts, to /head before the body is read."""
    body, more = b"", scope["path"] != "/head"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message["body"]
        more = message["more_body"]
    asked = {name: scope[name] for name in ("method", "path")}
    asked |= {"query": scope["query_string"].decode(), "body": body.decode("latin-1")}
    answer = json.dumps(asked).encode()
    sized = [] if scope["path"] == "/parts" else [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": sized})
    if not sized:
        await send({"type": "http.response.body", "body": answer[:9], "more_body": True})
        answer = answer[9:]
    await send({"type": "http.response.body", "body": answer})


@contextlib.asynccontextmanager
async def served(app=echo):
    """Serve an application; yield a function that connects a client."""
    writers = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = serving._Granian(app, listener)
        going = asyncio.create_task(server.serve())

        async def connect():
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writers.append(writer)
            return reader, writer

        try:
            yield connect
        finally:
            for writer in writers:
                writer.transport.abort()
            server.stop()
            await asyncio.wait_for(going, 20)


async def talked(connect, *parts, quiet=0.3):
    """Send bytes; return all that comes back until nothing does for a moment."""
    reader, writer = await connect()
    got = b""
    for part in parts:
        writer.write(part)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(quiet) as silence:
                while some := await reader.read(1 << 16):
                    got += some
                    silence.reschedule(asyncio.get_running_loop().time() + quiet)
    return got


def exchanged(*parts, app=echo):
    async def run():
        async with served(app) as connect:
            return await talked(connect, *parts)

    return asyncio.run(run())


def bodies(got):
    """Return what `echo` has answered."""
    decoder = json.JSONDecoder()
    answers, text = [], got.decode("latin-1")
    while (start := text.find('{"method"')) >= 0:
        answer, end = decoder.raw_decode(text[start:])
        answers.append(answer)
        text = text[start + end :]
    return answers


def test_requests_of_one_connection_are_answered_in_their_order():
    sent = b"".join(b"GET /%d?a=%d HTTP/1.1\r\n%s\r\n" % (n, n, HOST) for n in range(300))
    answers = bodies(exchanged(sent))
    assert [answer["path"] for answer in answers] == [f"/{n}" for n in range(300)]
    assert answers[7]["query"] == "a=7"


def test_bodies_come_at_once_in_parts_and_in_chunks():
    for coding in ("length", "chunks"):
        framed = b"Content-Length: 9\r\n\r\nred kites"
        if coding == "chunks":
            framed = b"Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nred \r\n05\r\nkites\r\n0\r\n"
            framed += b"A: b\r\n\r\n"
        sent = b"POST /x HTTP/1.1\r\n" + HOST + framed
        for parts in ([sent * 2], [sent[:70], sent[70:80], sent[80:], sent]):
            answers = bodies(exchanged(*parts))
            assert [answer["body"] for answer in answers] == ["red kites"] * 2, (coding, parts)


def test_a_reply_without_a_length_is_in_chunks_and_of_http_1_0_ends_the_connection():
    got = exchanged(b"GET /parts HTTP/1.1\r\n" + HOST + b"\r\n")
    assert b"transfer-encoding: chunked" in got
    assert got.endswith(b"0\r\n\r\n")
    got = exchanged(b"GET /parts HTTP/1.0\r\n\r\nGET /second HTTP/1.1\r\n\r\n")
    assert b"chunked" not in got
    assert b"/second" not in got


def test_a_reply_to_head_has_no_body():
    got = exchanged(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.endswith(b"\r\n\r\n")


def test_a_body_that_waits_to_be_asked_for():
    head = b"POST %s HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    got = exchanged(head % b"/", b"abc")
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert bodies(got)[0]["body"] == "abc"
    assert b"100 Continue" not in exchanged(head % b"/head")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_nothing_after_it_is_read(sent):
    got = exchanged(sent + b"GET /smuggled HTTP/1.1\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("chunks", [b"x\r\nabc\r\n", b"3\r\nabcd\r\n", b"-3\r\nabc\r\n"])
def test_chunks_that_lie_end_the_connection(chunks):
    sent = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    got = exchanged(sent + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
    assert b"smuggled" not in got


def test_a_head_has_a_size():
    for head in (b"A: " + b"x" * 20_000, b"A: b\r\n" * 300 + b"\r\n"):
        got = exchanged(b"GET / HTTP/1.1\r\n" + head)
        assert got.startswith(b"HTTP/1.1 431 ")


def test_a_head_has_a_time_and_a_connection_that_waits_for_the_next_one(monkeypatch):
    monkeypatch.setattr(serving, "_HEAD_SECONDS", 1)

    async def run():
        async with served() as connect, asyncio.timeout(10):
            for sent in (b"", b"GET / HTTP/1.1\r\nA: b", b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"):
                reader, writer = await connect()
                writer.write(sent)
                with contextlib.suppress(ConnectionError):
                    await reader.read()

    asyncio.run(run())


def test_pipelined_requests_wait_unparsed_while_nobody_reads():
    calls = 0

    async def large(scope, receive, send):
        nonlocal calls
        calls += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * (1 << 20)})

    async def run():
        async with served(large) as connect:
            _, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 1_000_000)
            await asyncio.sleep(0.3)
            assert writer.transport.get_write_buffer_size() > 0  # the server doesn't read it
            assert calls < 20

    asyncio.run(run())


def test_an_answer_in_parts_is_made_as_far_as_it_is_taken():
    sent = 0

    async def endless(scope, receive, send):
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
            sent += 1 << 16

    async def run():
        async with served(endless) as connect:
            _, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"GET /x HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.5)
            first = sent
            await asyncio.sleep(0.5)
            assert 0 < first == sent < 16 << 20  # some are in buffers of the sockets
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if "future_watcher" in repr(task.get_coro()):
                    task.cancel()

    asyncio.run(run())
