"""Call an ASGI application in this process, without a socket."""

import asyncio
import json
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Answer:
    """The answer to a request."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]


async def call(app, method, url, body=b"", *, chunks=None, wait=None, **headers):
    """Send a request and return the answer.

    `chunks` are parts of the body in place of all of it; after them, `wait` is awaited before the
    body ends. Names of headers have _ for -.
    """
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    wait = wait and asyncio.ensure_future(wait)
    parts = list(chunks if chunks is not None else [body])
    address = urlsplit(url)
    names = {"host": "localhost:7373"} | {key.replace("_", "-"): headers[key] for key in headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": address.path,
        "raw_path": address.path.encode(),
        "query_string": address.query.encode(),
        "root_path": "",
        "headers": [(key.encode(), str(value).encode()) for key, value in names.items()],
        "server": ("127.0.0.1", 7373),
        "client": ("127.0.0.1", 50000),
        "state": {},
    }
    sent = []

    async def receive():
        if parts:
            part = parts.pop(0)
            more = bool(parts) or wait is not None
            return {"type": "http.request", "body": part, "more_body": more}
        if wait is not None:
            await asyncio.shield(wait)  # a server may give up, and ask again
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()  # until the request is cancelled
        return None

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    [start, *rest] = sent
    assert not rest[-1].get("more_body")
    headers = {key.decode(): value.decode() for key, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(each.get("body", b"") for each in rest))


async def close(app):
    """End an application, as a server does: everything in its queue is stored."""
    queue = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive():
        return queue.pop(0)

    async def send(message):
        assert message["type"].endswith(".complete"), message

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
