"""Connections of HTTP/1 over loopback: what they take, in which order, and what they refuse."""

import asyncio
import contextlib
import json
import socket
import tracemalloc

import pytest

pytest.importorskip("fpdb.integrations.server", reason="the extra serve isn't installed")

from fpdb.integrations.server import connection
from fpdb.integrations.server.connection import Connections
from fpdb.integrations.server.shares import Account, Crew

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
    asked = {name: scope[name] for name in ("method", "path", "http_version")}
    asked |= {"query": scope["query_string"].decode(), "body": body.decode("latin-1")}
    answer = json.dumps(asked).encode()
    sized = [] if scope["path"] == "/parts" else [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": sized})
    if not sized:
        await send({"type": "http.response.body", "body": answer[:9], "more_body": True})
        answer = answer[9:]
    await send({"type": "http.response.body", "body": answer})


@contextlib.asynccontextmanager
async def served(app=echo, memory=1 << 24, most=100):
    """Serve an application; yield the connections, and a function that connects a client."""
    connections = Connections(app, Account(memory), most, "http")
    listener = socket.create_server(("127.0.0.1", 0))
    going = [
        asyncio.create_task(each) for each in (connections.sweep(), connections.accept(listener))
    ]
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writers.append(writer)
        return reader, writer

    try:
        yield connections, connect
    finally:
        for writer in writers:
            writer.close()
        await connections.end(1)
        for each in going:
            each.cancel()
        listener.close()


def exchanged(sent, **settings):
    """Send bytes and the end of what is sent later on; return all that comes back."""

    async def run():
        async with served(**settings) as (connections, connect):
            reader, writer = await connect()
            got = b""
            for part in sent if isinstance(sent, list) else [sent]:
                writer.write(part)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2) as quiet:
                        while some := await reader.read(1 << 16):
                            got += some
                            quiet.reschedule(asyncio.get_running_loop().time() + 0.2)
            assert connections.memory.free <= connections.memory.limit
            return got

    return asyncio.run(run())


def bodies(got):
    """Return what `echo` has answered."""
    decoder = json.JSONDecoder()
    found, text = [], got.decode("latin-1")
    while (start := text.find('{"method"')) >= 0:
        answer, end = decoder.raw_decode(text[start:])
        found.append(answer)
        text = text[start + end :]
    return found


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
        for parts in ([sent, sent], [sent[:70], sent[70:80], sent[80:], sent]):
            answers = bodies(exchanged(parts))
            assert [answer["body"] for answer in answers] == ["red kites"] * 2, (coding, parts)
        # Where a body in chunks ends, only its parser knows: what comes with its end isn't read.
        got = exchanged(sent * 2)
        assert len(bodies(got)) == (2 if coding == "length" else 1)
        assert (b"connection: close" in got) == (coding == "chunks")


def test_a_reply_without_a_length_is_in_chunks_and_of_http_1_0_ends_the_connection():
    got = exchanged(b"GET /parts HTTP/1.1\r\n" + HOST + b"\r\n")
    assert b"transfer-encoding: chunked" in got
    assert got.endswith(b"0\r\n\r\n")
    for old in (b"/parts", b"/parts HTTP/1.0\r\nConnection: keep-alive"):
        line = old if b"HTTP" in old else old + b" HTTP/1.0"
        got = exchanged(b"GET " + line + b"\r\n\r\n" + b"GET /second HTTP/1.1\r\n\r\n")
        assert b"connection: close" in got
        assert b"chunked" not in got
        assert b"/second" not in got


def test_head_has_no_body_and_an_upgrade_is_not_made():
    got = exchanged(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
    assert got.endswith(b"\r\n\r\n")
    assert b"content-length: 7" in got
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    for method, body in ((b"GET", b"\r\n"), (b"POST", b"Content-Length: 3\r\n\r\nabc")):
        sent = method + b" / HTTP/1.1\r\n" + HOST + upgrade + body
        assert len(bodies(exchanged(sent * 2))) == 2


def test_a_body_that_waits_to_be_asked_for():
    head = b"POST %s HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    got = exchanged([head % b"/", b"abc"])
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert bodies(got)[0]["body"] == "abc"
    refused = exchanged([head % b"/head", b""])  # without the body, which may come or not
    assert b"100 Continue" not in refused
    assert b"connection: close" in refused


def test_a_body_that_nobody_reads_ends_the_connection_once_the_client_has_the_answer():
    sent = b"POST /head HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    got = exchanged(sent + b"GET /next HTTP/1.1\r\n\r\n")
    assert len(bodies(got)) == 1
    assert b"connection: close" in got
    short = b"POST /head HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    assert len(bodies(exchanged(short * 2))) == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_nothing_after_it_is_read(sent):
    got = exchanged(sent + b"GET /smuggled HTTP/1.1\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "chunks", [b"x\r\nabc\r\n", b"3\r\nabcd\r\n", b"-3\r\nabc\r\n", b"3 4\r\n"]
)
def test_chunks_that_lie_end_the_connection(chunks):
    sent = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    got = exchanged(sent + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
    assert b"smuggled" not in got
    assert b"connection: close" in got


def test_a_head_has_a_size():
    for head in (b"A: " + b"x" * 70_000, b"A: b\r\n" * 300 + b"\r\n"):
        got = exchanged(b"GET / HTTP/1.1\r\n" + head)
        assert got.startswith(b"HTTP/1.1 431 ")


def test_pipelined_requests_wait_unparsed_while_nobody_reads():
    async def run():
        calls = 0

        async def large(scope, receive, send):
            nonlocal calls
            calls += 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * (1 << 20)})

        async with served(large) as (connections, connect):
            _, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 1_000_000)
            await asyncio.sleep(0.3)
            held = connections.memory.limit - connections.memory.free
            assert writer.transport.get_write_buffer_size() > 0  # the server doesn't read it
            assert calls < 20
            assert held < 200_000

    asyncio.run(run())


def test_a_large_answer_is_not_copied_while_it_waits_to_be_taken():
    body = bytes(8 << 20)

    async def large(scope, receive, send):
        sized = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": sized})
        await send({"type": "http.response.body", "body": body})

    async def run():
        async with served(large) as (_, connect):
            reader, writer = await connect()
            writer.transport.pause_reading()
            tracemalloc.start()
            try:
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await asyncio.sleep(0.2)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < len(body) // 4
            writer.transport.resume_reading()
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(body)) == body

    asyncio.run(run())


def test_who_takes_no_answer_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "_TAKING_SECONDS", 0.2)
    ended = []

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": 1})
        finally:
            ended.append(scope["path"])

    async def run():
        async with served(endless) as (connections, connect):
            _, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"GET /x HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(5):
                while not ended:
                    await asyncio.sleep(0.05)
            assert not connections.open
            assert connections.memory.free == connections.memory.limit

    asyncio.run(run())


def test_no_work_is_done_for_a_client_that_is_gone():
    ended = asyncio.Event()

    async def slow(scope, receive, send):
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def run():
        async with served(slow) as (_, connect):
            _, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.05)
            writer.close()
            async with asyncio.timeout(5):
                await ended.wait()

    asyncio.run(run())


def test_the_oldest_connection_without_a_request_makes_room():
    async def run():
        going = asyncio.Event()

        async def slow(scope, receive, send):
            await going.wait()
            await echo(scope, receive, send)

        async with served(slow, most=3) as (_, connect):
            clients = [await connect() for _ in range(2)]
            clients[0][1].write(b"GET /busy HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.05)
            clients += [await connect() for _ in range(3)]
            async with asyncio.timeout(5):
                for reader, _ in clients[1:3]:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
            going.set()
            assert b"200 OK" in await clients[0][0].readline()
            clients[4][1].write(b"GET / HTTP/1.1\r\n\r\n")
            assert b"200 OK" in await clients[4][0].readline()

    asyncio.run(run())


def test_all_that_have_come_are_accepted_before_others_are_answered():
    async def run():
        connections = Connections(echo, Account(1 << 24), 100, "http")
        with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as clients:
            first, *_ = (
                clients.enter_context(socket.create_connection(listener.getsockname()))
                for _ in range(120)
            )
            accepting = asyncio.create_task(connections.accept(listener))
            for _ in range(10):  # turns of the loop, in which others would be answered
                await asyncio.sleep(0)
            assert len(connections.open) == 100
            first.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert first.recv(1) == b""
            accepting.cancel()
            await connections.end(0)
            assert connections.memory.free == connections.memory.limit

    asyncio.run(run())


def test_an_application_that_fails_is_status_500(caplog):
    async def bad(scope, receive, send):
        raise RuntimeError("oh")

    got = exchanged(b"GET / HTTP/1.1\r\n\r\n", app=bad)
    assert got.startswith(b"HTTP/1.1 500 ")
    assert "a request couldn't be answered" in caplog.text


# What peers share


def test_who_asks_holds_as_much_as_is_free_for_others():
    shares = Account(100)
    assert not shares.take("a", 51)
    assert shares.take("a", 50)
    assert not shares.take("a")
    assert shares.take("b", 25)
    assert not shares.take("b")
    shares.give_all("a")
    assert shares.take("b", 25)
    shares.give("a", 5)  # which holds nothing
    assert shares.free == 50
    assert not Account(100, largest=10).take("a", 11)


def test_those_who_wait_have_their_turns():
    async def run():
        shares, order = Account(4), []

        async def wait(who):
            await shares.wait(who)
            order.append(who)

        shares.hold("z", 4)
        tasks = [asyncio.create_task(wait(who)) for who in "aaab"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        shares.give("z", 3)
        await asyncio.sleep(0.05)
        assert order == ["a", "b"]
        shares.give("b")
        await asyncio.sleep(0.05)
        assert order == ["a", "b"]  # as much as "a" holds must be left for others
        shares.give("a")
        await asyncio.sleep(0.05)
        assert order == ["a", "b", "a"]

    asyncio.run(run())


def test_one_peer_leaves_threads_to_others():
    import threading

    async def run():
        crew, go = Crew(4, "test"), threading.Event()
        slow = [crew.run("greedy", go.wait) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(crew.run("other", lambda: 7), 5) == 7
        for each in slow[10:]:
            each.cancel()
        go.set()
        await asyncio.gather(*slow, return_exceptions=True)
        assert [each.cancelled() for each in slow] == [False] * 10 + [True] * 10
        crew.close()

    asyncio.run(run())
