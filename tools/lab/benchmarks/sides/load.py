"""Send requests of a file over many connections, and print how long the answers took.

`load.py PORT CONNECTIONS N FILE` sends each line of the file, which is a JSON object, or N lines
in each request. Sockets are read and written without any library for HTTP, so that the server is
the limit.
"""

import asyncio
import gc
import json
import sys
import time
from itertools import islice
from pathlib import Path

import uvloop

HEAD = (
    b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
)


class Client(asyncio.Protocol):
    """A connection: it sends a request, waits for its answer, and sends the next."""

    def __init__(self, requests, took):
        self.requests, self.took = requests, took
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            self.ended.set_result(None)
            return
        self.got, self.begun = b"", time.perf_counter()
        self.transport.write(request)

    def data_received(self, data):
        self.got += data
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return
        _, found, length = head.partition(b"content-length: ")
        if found:
            complete = len(body) == int(length.partition(b"\r")[0])
        else:  # in chunks
            complete = body.endswith(b"0\r\n\r\n")
        if complete:
            self.took.append(time.perf_counter() - self.begun)
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(self.got.decode())
            self.send()

    def connection_lost(self, error):
        if not self.ended.done():
            self.ended.set_exception(error or EOFError("the server closed a connection"))


async def load(port, connections, requests):
    took, waiting = [], iter(requests)
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: Client(waiting, took), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.ended for client in clients))
    return time.perf_counter() - begun, sorted(took)


def requests_of(lines, together):
    kind = b"application/json" if together == 1 else b"application/x-ndjson"
    while some := list(islice(lines, together)):
        body = b"\n".join(some)
        yield HEAD % (kind, len(body)) + body


def main():
    port, connections, together, path = sys.argv[1:]
    lines = Path(path).read_bytes().splitlines()
    requests = list(requests_of(iter(lines), int(together)))
    gc.disable()
    seconds, took = uvloop.run(load(int(port), int(connections), requests))
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    print(json.dumps({"documents": len(lines), "seconds": seconds, "p50": p50, "p99": p99}))


if __name__ == "__main__":
    main()
