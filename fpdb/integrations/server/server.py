"""A database with what answers requests about it, their limits, and the requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

import fpdb
from fpdb.integrations.batcher import Batcher, Outcome, added_to
from fpdb.integrations.server.access import Access, Visitor
from fpdb.integrations.server.messages import CheckBody, Content, QueryBody
from fpdb.integrations.server.metrics import Metrics
from fpdb.integrations.server.replies import ProblemError

P = ParamSpec("P")
Result = TypeVar("Result")
# As ASGI has them.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

# Threads that read the database; more gain little, since one at a time runs Python.
_THREADS = 4
_NOBODY = Visitor("read")


@dataclass(frozen=True)
class Limits:
    """What one request may take, and how many there may be.

    A document, alone or in a line, has at most `document` bytes of JSON, and its text at most what
    the recipe takes. A request of lines has at most `lines` of them, and `body` bytes. A request
    takes at most `seconds`; one of lines as long for each part that is read or sent. Beyond
    `requests` in flight, or `memory` bytes in their bodies, requests get the status 503.
    """

    document: int = 4 << 20
    lines: int = 100_000
    body: int = 256 << 20
    requests: int = 1000
    memory: int = 256 << 20
    seconds: float = 30.0


class Server:
    """A database with what answers requests about it."""

    def __init__(
        self, database: fpdb.Database, limits: Limits, access: Access, similarity: float | None
    ) -> None:
        self.database = database
        self.access = access
        self.limits = limits
        self.metrics = Metrics(database)
        # Set when the server ends: requests of lines take no further ones then.
        self.stopping = asyncio.Event()
        # Bytes in the bodies of requests that are in flight.
        self.held = 0
        self._similarity = similarity
        self._adding = added_to(database, similarity)
        self._threads = ThreadPoolExecutor(_THREADS, "fpdb-read")
        self._batcher: Batcher[Outcome] | None = None

    async def read(
        self, function: Callable[P, Result], *arguments: P.args, **named: P.kwargs
    ) -> Result:
        """Return what a function returns in one of a few threads."""
        call = partial(function, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def add(self, documents: Sequence[fpdb.Document]) -> asyncio.Future[list[Outcome]]:
        """Add documents; the result is set once these and all before are stored durably."""
        if self._batcher is None:  # here, since an application that is mounted has no lifespan
            self._batcher = batcher = Batcher(self._store)
            self.metrics.waiting.set_function(lambda: batcher.waiting)
        return self._batcher.add(documents)

    def _store(self, documents: Sequence[fpdb.Document]) -> list[Outcome]:
        """Add documents in one transaction, and count it."""
        began = time.perf_counter()
        found = self._adding(documents)
        self.metrics.count_transaction(found, time.perf_counter() - began)
        return found

    async def close(self) -> None:
        """Wait until everything that was accepted is stored."""
        if self._batcher is not None:
            await self._batcher.close()
        self._threads.shutdown(wait=False)

    def require_size(self, size: int) -> None:
        """Raise ProblemError if a document has more bytes than it may."""
        if size > self.limits.document:
            raise ProblemError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"found a document of more than {self.limits.document:,} bytes",
                hint="leave such documents out, or cut them into several",
            )

    def require_fitting(self, content: Content) -> None:
        """Raise an error unless something is given once, for the recipe of the database."""
        given = [content.text, content.html, content.fingerprint]
        if given.count(None) != len(given) - 1:
            raise fpdb.InputError(
                f"found {len(given) - given.count(None)} of text, html and fingerprint, expected "
                "one of them",
                hint="a text is what the recipe is made for",
            )
        if content.recipe not in {None, self.database.recipe.id}:
            raise fpdb.RecipeMismatchError(
                f"the database has the recipe {self.database.recipe.id}, found {content.recipe}",
                hint="make fingerprints by the recipe of the database, or send texts",
            )

    async def document_of(self, body: CheckBody) -> fpdb.Document:
        """Return the document to store."""
        self.require_fitting(body)
        text = body.text
        if body.html is not None:
            text = (await self.read(fpdb.html_text, body.html)).text
        document = fpdb.Document(body.key, text, body.meta, self._number_of(body))
        if body.html is None:
            self.database.preparer.watched([document])
        return document

    def near(self, question: QueryBody) -> fpdb.Matches:
        """Find the stored documents near a text, a page or a fingerprint; call it in a thread."""
        self.require_fitting(question)
        number, k, limit = self._number_of(question), question.k, question.limit
        if number is None:
            html = question.html
            text = question.text or "" if html is None else fpdb.html_text(html).text
            similarity = question.similarity or (self._similarity if k is None else None)
            return self.database.query(text, similarity=similarity, k=k, limit=limit)
        if question.similarity is not None:
            raise fpdb.InputError(
                "found a similarity and a ready fingerprint, expected a text, which alone has one",
                hint="leave similarity out, or query with k",
            )
        return self.database.query_fingerprint(number, k=k, limit=limit)

    def _number_of(self, content: Content) -> int | None:
        if content.fingerprint is None:
            return None
        return fpdb.parse_fingerprint(content.fingerprint, self.database.plan.bits)


@dataclass(slots=True)
class Request:
    """A request to a server: who sent it, and its body, which is still to come."""

    server: Server
    scope: Scope
    receive: Receive
    headers: dict[bytes, bytes]
    visitor: Visitor = _NOBODY
    call: str = "none"
    # Of the reply, once it is sent.
    status: int = 0
    # The bytes of its body that are in memory.
    held: int = 0

    async def body(self) -> bytes:
        """Return the body, which has one document."""
        declared = self.headers.get(b"content-length", b"")
        self.server.require_size(int(declared) if declared.isdigit() else 0)
        parts: list[bytes] = []
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(HTTPStatus.BAD_REQUEST, "the body ended early")
            parts.append(message.get("body", b""))
            self._hold(len(parts[-1]))
            self.server.require_size(self.held)
            more = message.get("more_body", False)
        return b"".join(parts)

    def require_writer(self) -> None:
        """Raise ProblemError unless the visitor may write."""
        if self.visitor.role != "write":
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "the token may only read",
                hint="send one of the lines `write TOKEN` of the token file",
            )

    def _hold(self, size: int) -> None:
        """Count bytes of the body; raise ProblemError if all requests have too many."""
        self.held += size
        self.server.held += size
        if self.server.held > self.server.limits.memory:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the requests in flight have more than {self.server.limits.memory:,} bytes",
                hint="send fewer at a time",
            )
