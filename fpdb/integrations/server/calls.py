"""The calls of the API, version 1."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import fpdb
from fpdb.integrations.server.lines import LinesResponse, Submit, is_lines
from fpdb.integrations.server.messages import (
    CheckAnswer,
    CheckBody,
    QueryAnswer,
    QueryBody,
    StoredDocument,
    checked,
    found,
    looked_up,
)
from fpdb.integrations.server.problems import ProblemError, status_of
from fpdb.integrations.server.server import Server

Body = TypeVar("Body", CheckBody, QueryBody)
_check = msgspec.json.Decoder(CheckBody)
_query = msgspec.json.Decoder(QueryBody)
_encode = msgspec.json.Encoder().encode
# What is wrong with one line, and not with the server.
_REFUSALS = (fpdb.FpdbError, ProblemError)


async def check(request: Request) -> Response | LinesResponse:
    """Look for one document, or for each of many lines, and store what is new."""
    server: Server = request.app.state.server
    if is_lines(request):
        _require_writer(request)
        return _lines(request, _CheckedLines(server).submit, _refused_check)
    body = _decoded(_check, await server.body(request))
    if not body.store:
        return _json(await server.read(_look, server, body))
    _require_writer(request)
    [added] = await server.add([await server.document_of(body)])
    if isinstance(added, fpdb.FpdbError):
        raise added
    return _json(checked(added))


async def query(request: Request) -> Response | LinesResponse:
    """Find the stored documents near one text, page or fingerprint, or near each of many lines."""
    server: Server = request.app.state.server
    if is_lines(request):
        return _lines(request, partial(_submit_questions, server), _refused_query)
    question = _decoded(_query, await server.body(request))
    return _json(found(await server.read(server.near, question)))


async def documents(request: Request) -> Response:
    """Return what is stored of a document, or delete it."""
    server: Server = request.app.state.server
    key = _key(request, server.database)
    if request.method == "DELETE":
        _require_writer(request)
        if not await server.read(server.database.delete, key):
            raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
        return Response(status_code=HTTPStatus.NO_CONTENT)
    document = await server.read(server.database.get, key)
    if document is None:
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    number, bits = document.fingerprint, server.database.plan.bits
    return _json(
        StoredDocument(
            key=document.key,
            id=document.id,
            fingerprint=None if number is None else fpdb.format_fingerprint(number, bits),
            short=document.short,
            added=document.added,
            characters=document.characters,
            meta=document.meta,
        )
    )


async def stats(request: Request) -> Response:
    """Return what the database holds, and how."""
    server: Server = request.app.state.server
    return _json(dataclasses.asdict(await server.read(server.database.stats)))


async def healthz(request: Request) -> Response:
    """Return whether the database can be read."""
    server: Server = request.app.state.server
    await server.read(len, server.database)
    return _json({"status": "ok"})


async def metrics(request: Request) -> Response:
    """Return what Prometheus reads."""
    server: Server = request.app.state.server
    written = await server.read(server.metrics.written)
    return Response(written, media_type="text/plain; version=0.0.4; charset=utf-8")


FREQUENT = {("POST", "/v1/check"): check, ("POST", "/v1/query"): query}
ROUTES = [
    Route("/v1/check", check, methods=["POST"]),
    Route("/v1/query", query, methods=["POST"]),
    Route("/v1/documents", documents, methods=["GET", "DELETE"]),
    Route("/v1/stats", stats, methods=["GET"]),
    Route("/healthz", healthz, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]


_Adding = Awaitable[list[fpdb.Added | fpdb.FpdbError]]


class _CheckedLines:
    """The documents of one request of lines, which are stored in their order."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._documents: list[fpdb.Document] = []
        # What was added of the part that is read, and at last.
        self._adding: list[_Adding] = []
        self._last: asyncio.Future[Any] | None = None

    async def submit(self, lines: Sequence[bytes | None]) -> Awaitable[list[CheckAnswer]]:
        """Begin to store the documents of lines; their answers are awaited."""
        begun = [await self._begin(line) for line in lines]
        self._add()
        adding, self._adding = self._adding, []
        return self._finish(begun, adding)

    async def _begin(self, line: bytes | None) -> CheckAnswer | fpdb.Document:
        """Return the document to store, or an answer that needs none."""
        key = None
        try:
            body = _decoded(_check, self._server.require_line(line))
            key = body.key
            if body.store:
                document = await self._server.document_of(body)
                self._documents.append(document)
                return document
            self._add()
            if self._last:  # a look finds what the lines before it have stored
                await asyncio.wait([self._last])
            return await self._server.read(_look, self._server, body)
        except _REFUSALS as error:
            return _refused_check(error, key)

    def _add(self) -> None:
        if self._documents:
            self._last = self._server.add(self._documents)
            self._adding.append(self._last)
            self._documents = []

    @staticmethod
    async def _finish(
        begun: Sequence[CheckAnswer | fpdb.Document], adding: Sequence[_Adding]
    ) -> list[CheckAnswer]:
        outcomes = iter([outcome for each in adding for outcome in await each])
        answers: list[CheckAnswer] = []
        for each in begun:
            outcome = each if isinstance(each, CheckAnswer) else next(outcomes)
            if isinstance(outcome, fpdb.FpdbError):
                outcome = _refused_check(outcome, each.key)
            answers.append(checked(outcome) if isinstance(outcome, fpdb.Added) else outcome)
        return answers


async def _submit_questions(
    server: Server, lines: Sequence[bytes | None]
) -> Awaitable[list[QueryAnswer]]:
    """Begin to answer the questions of lines; the answers are awaited."""
    return server.read(_answer_questions, server, lines)


def _answer_questions(server: Server, lines: Sequence[bytes | None]) -> list[QueryAnswer]:
    answers: list[QueryAnswer] = []
    for line in lines:
        try:
            answers.append(found(server.near(_decoded(_query, server.require_line(line)))))
        except _REFUSALS as error:
            answers.append(_refused_query(error))
    return answers


def _look(server: Server, body: CheckBody) -> CheckAnswer:
    """Answer what a document resembles, without storing it; it runs in a thread."""
    # Of two matches, one may be the document itself, as it was stored before.
    question = QueryBody(
        text=body.text, html=body.html, fingerprint=body.fingerprint, recipe=body.recipe, limit=2
    )
    return looked_up(body.key, server.near(question))


def _refused_check(error: Exception, key: fpdb.models.Key | None = None) -> CheckAnswer:
    return CheckAnswer(
        key=key,
        status="error" if status_of(error) < HTTPStatus.INTERNAL_SERVER_ERROR else "failed",
        error=str(error),
        hint=getattr(error, "hint", "") or None,
    )


def _refused_query(error: Exception) -> QueryAnswer:
    return QueryAnswer(matches=[], error=str(error), hint=getattr(error, "hint", "") or None)


def _lines(
    request: Request, submit: Submit, refuse: Callable[[Exception], msgspec.Struct]
) -> LinesResponse:
    """Return the response to a request of lines, which has no deadline as a whole."""
    request.scope["fpdb.deadline"].reschedule(None)
    return LinesResponse(request.app.state.server, submit, refuse)


def _decoded(decoder: msgspec.json.Decoder[Body], data: bytes) -> Body:
    """Decode JSON; raise InputError if it isn't such a document, ProblemError if it isn't JSON."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise fpdb.InputError(
            str(error), hint="/docs has the fields of each request, and examples"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            f"this isn't JSON in UTF-8: {error}",
            hint="send one JSON object, or one a line as application/x-ndjson",
        ) from None


def _json(value: Any) -> Response:
    # The end of the line is for those who call it in a terminal.
    return Response(_encode(value) + b"\n", media_type="application/json")


def _key(request: Request, database: fpdb.Database) -> str | int:
    """Return the key in the query of a request."""
    key = request.query_params.get("key")
    if key is None:
        raise fpdb.InputError("found no key", hint="/v1/documents?key=… names the document")
    if database.keys == "text":
        return key
    if not (key.isascii() and key.isdigit()):
        raise fpdb.InputError(
            f"found the key {key[:40]!r}, expected a whole number from 0 to 2**64 - 1",
            hint="the keys of this database are integers",
        )
    return int(key)


def _require_writer(request: Request) -> None:
    if request.state.role != "write":
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "the token may only read",
            hint="send one of the lines `write TOKEN` of the token file",
        )
