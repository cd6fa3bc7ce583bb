"""A database with what answers requests about it, their limits, and the requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, MutableMapping, Sequence
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
from fpdb.integrations.server.shares import Account, Crew

P = ParamSpec("P")
Result = TypeVar("Result")
# As ASGI has them.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

# Threads that read the database for a peer; more gain little, since one at a time runs Python.
_THREADS = 4
# Queries with more matches are answered by a single thread: they may take 64 KiB for each.
MANY_MATCHES = 100
# Documents that wait to be stored, in all; and how many characters count as one more of them.
_QUEUE, _CHARACTERS = 4000, 8192
# A body takes this multiple of its size: as it came, and decoded, four bytes for a character.
_WEIGHT = 5
# One request or connection holds at most this share of the memory.
_SHARE = 5
# For small requests, a share is left by others.
_RESERVE = 4
# Room that there must be before an answer is made.
_ANSWER = 1 << 14
_NOBODY = Visitor("read")


@dataclass(frozen=True)
class Limits:
    """What one request may take, and how many there may be.

    A document, alone or in a line, has at most `document` bytes of JSON, and its text at most what
    the recipe takes. A request of lines has at most `lines` of them, and `body` bytes. A request
    takes at most `seconds`; one of lines as long for each line that comes, and each part that is
    sent. A token or an address has at most `requests` in flight, and all together less than twice
    as many; beyond these, they get the status 503. `memory` are the bytes that are held for all,
    of which documents that are read count five times; requests wait for it, and each gets what it
    leaves for the others. An answer, or the answer to a line, has at most `answer` bytes.
    """

    document: int = 4 << 20
    lines: int = 100_000
    body: int = 256 << 20
    requests: int = 1000
    memory: int = 160 << 20
    answer: int = 16 << 20
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
        # Everything that is held for connections and their requests.
        self.memory = Account(
            limits.memory,
            f"the requests in flight have more than {limits.memory:,} bytes",
            limits.memory // _SHARE,
            limits.memory // _RESERVE,
        )
        self.places = Account(
            2 * limits.requests,
            f"more than {limits.requests:,} requests of this token or address are in flight",
        )
        self._similarity = similarity
        self._adding = added_to(database, similarity)
        self._readers = Crew(_THREADS, "read")
        self._many = Crew(1, "matches")
        self._watcher = Crew(1, "watch")
        self._watching: dict[Callable[[], Any], asyncio.Future[Any]] = {}
        self._queue = Account(_QUEUE, "too many documents wait to be stored")
        self._batcher: Batcher[Outcome] | None = None

    async def watch(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns in a thread that nothing else uses.

        Those who call it at the same time get the same.
        """
        if (running := self._watching.get(function)) is None:
            running = asyncio.ensure_future(self._watcher.run(None, function))
            self._watching[function] = running
            running.add_done_callback(lambda _: self._watching.pop(function))
        result: Result = await asyncio.shield(running)
        return result

    async def read(
        self, peer: Hashable, function: Callable[[], Result], matches: int = 0
    ) -> Result:
        """Return what a function returns in one of the threads that peers share."""
        crew = self._many if matches > MANY_MATCHES else self._readers
        return await crew.run(peer, function)

    async def add(
        self, peer: Hashable, documents: Sequence[fpdb.Document]
    ) -> asyncio.Future[list[Outcome]]:
        """Add documents once the peer has its turn; these and all before are durable then."""
        if self._batcher is None:  # here, since an application that is mounted has no lifespan
            self._batcher = batcher = Batcher(self._store)
            self.metrics.waiting.set_function(lambda: batcher.waiting)
        size = sum(1 + len(document.text or "") // _CHARACTERS for document in documents)
        if size:
            await self._queue.wait(peer, size)
        adding = self._batcher.add(documents)
        if size:
            adding.add_done_callback(lambda _: self._queue.give(peer, size))
        return adding

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
        for crew in (self._readers, self._many, self._watcher):
            crew.close()

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

    async def document_of(self, peer: Hashable, body: CheckBody) -> fpdb.Document:
        """Return the document to store."""
        self.require_fitting(body)
        text = body.text
        if body.html is not None:
            text = (await self.read(peer, partial(fpdb.html_text, body.html))).text
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


@dataclass(slots=True, eq=False)
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
    # Whether it has one of the places of its peer.
    placed: bool = False

    async def body(self) -> bytes:
        """Return the body, which has one document."""
        length = self.headers.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else 0
        self.server.require_size(declared)
        await self.hold(declared * _WEIGHT)
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(HTTPStatus.BAD_REQUEST, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.server.require_size(size)
            if size > declared:
                await self.hold((size - declared) * _WEIGHT)
                declared = size
            more = message.get("more_body", False)
        return b"".join(parts)

    async def hold(self, size: int) -> None:
        """Hold more bytes, once there is room for them."""
        if size:
            await self.server.memory.wait(self, size)

    def release(self, size: int) -> None:
        """Hold fewer bytes."""
        if size:
            self.server.memory.give(self, size)

    async def read(
        self, function: Callable[P, Result], *arguments: P.args, **named: P.kwargs
    ) -> Result:
        """Return what a function returns in a thread, once the visitor has a turn."""
        return await self.server.read(self.visitor.peer, partial(function, *arguments, **named))

    async def answer(
        self, function: Callable[[], Result], size: Callable[[Result], int], matches: int = 0
    ) -> Result:
        """Return what a function returns in a thread, which is held from then on.

        If there is no room for it, it is dropped, and made again once there is.
        """
        server, room = self.server, _ANSWER
        while True:
            await self.hold(room)
            result = await server.read(self.visitor.peer, function, matches)
            self.release(room)
            if server.memory.take(self, size(result)):
                return result
            room = size(result)
            del result  # before it waits

    def require_writer(self) -> None:
        """Raise ProblemError unless the visitor may write."""
        if self.visitor.role != "write":
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "the token may only read",
                hint="send one of the lines `write TOKEN` of the token file",
            )
