"""The calls of the API, version 1, and their table."""

import asyncio
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec

import fpdb
from fpdb.integrations.batcher import Outcome
from fpdb.integrations.server.lines import encoded, is_lines, lines_reply
from fpdb.integrations.server.messages import (
    CheckAnswer,
    CheckBody,
    MetaBody,
    QueryAnswer,
    QueryBody,
    StoredDocument,
    checked,
    found,
)
from fpdb.integrations.server.replies import (
    JSON,
    HttpReply,
    ProblemError,
    hint_of,
    json_reply,
    status_of,
)
from fpdb.integrations.server.server import MANY_MATCHES, Request, Server

Body = TypeVar("Body", CheckBody, QueryBody)
_check = msgspec.json.Decoder(CheckBody)
_query = msgspec.json.Decoder(QueryBody)
_meta = msgspec.json.Decoder(MetaBody)
# What is wrong with one line, and not with the server.
_REFUSALS = (fpdb.FpdbError, ProblemError)
_encode_answer = msgspec.json.Encoder().encode
# Queries of lines are answered for as long before it is another visitor's turn.
_TURN_SECONDS = 0.02
# A document of fewer bytes, decoded, is never large; of a larger one, the metadata have at most
# this size as JSON, of which three bytes may become a hundred.
_SMALL, _META = 1 << 17, 1 << 19
# In JSON, the first half of a surrogate pair that no second half follows.
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_NUMBER = re.compile("[0-9]{1,20}")


class Call(NamedTuple):
    """A method of a path, what answers it, and what its body and its answer are.

    Its description is the docstring of what answers it. A path that ends with * is any below it.
    """

    method: str
    path: str
    reply: Callable[[Request], Awaitable[HttpReply]]
    body: type[msgspec.Struct] | None = None
    answer: Any = None
    keyed: bool = False


async def check(request: Request) -> HttpReply:
    """Look for a document, and store it.

    Stores the document unless it resembles a stored one; both are one transaction.
    """
    server = request.server
    if is_lines(request):
        request.require_writer()
        return lines_reply(request, _submit_documents, _refused_check)
    body = _decoded(_check, await request.body())
    if not body.store:
        return json_reply(await request.read(_look, server, body))
    request.require_writer()
    peer = request.visitor.peer
    [added] = await (await server.add(peer, [await server.document_of(peer, body)]))
    if isinstance(added, fpdb.FpdbError):
        raise added
    return json_reply(checked(added.key, added.status, added.matches))


async def query(request: Request) -> HttpReply:
    """Find near documents.

    Finds the stored documents near a text, a page or a fingerprint.
    """
    if is_lines(request):
        return lines_reply(request, _submit_questions, _refused_query)
    question = _decoded(_query, await request.body())
    answered = partial(_encoded_answer, request.server, question)
    written = await request.answer(answered, len, question.limit)
    return HttpReply(written, headers=JSON)


async def document(request: Request) -> HttpReply:
    """Get a document.

    Returns what is stored of a document; its text isn't.
    """
    database, key = request.server.database, _key(request)
    stored = await request.read(database.get, key)
    if stored is None:
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    number = stored.fingerprint
    return json_reply(
        StoredDocument(
            key=stored.key,
            id=stored.id,
            fingerprint=None
            if number is None
            else fpdb.format_fingerprint(number, database.plan.bits),
            short=stored.short,
            added=stored.added,
            characters=stored.characters,
            meta=stored.meta,
        )
    )


async def delete(request: Request) -> HttpReply:
    """Delete a document.

    Deletes a document for good.
    """
    request.require_writer()
    key = _key(request)
    if not await request.read(request.server.database.delete, key):
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    return HttpReply(status=HTTPStatus.NO_CONTENT)


async def stats(request: Request) -> HttpReply:
    """Get statistics.

    Returns the size and the settings of the database, as `fpdb stats --json`, with the name of its
    directory only.
    """
    database = request.server.database
    found = dataclasses.asdict(await request.read(database.stats))
    return json_reply(found | {"path": database.path.name})


async def healthz(request: Request) -> HttpReply:
    """Check the server.

    Returns whether the database can be read; it needs no token.
    """
    await request.server.watch(request.server.database.__len__)
    return json_reply({"status": "ok"})


async def metrics(request: Request) -> HttpReply:
    """Get metrics.

    Returns what Prometheus reads.
    """
    written = await request.server.watch(request.server.metrics.written)
    return HttpReply(written, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


CALLS = (
    Call("POST", "/v1/check", check, CheckBody, CheckAnswer),
    Call("POST", "/v1/query", query, QueryBody, QueryAnswer),
    Call("GET", "/v1/documents", document, answer=StoredDocument, keyed=True),
    Call("DELETE", "/v1/documents", delete, keyed=True),
    Call("GET", "/v1/stats", stats, answer=dict),
    Call("GET", "/healthz", healthz, answer=dict),
    Call("GET", "/metrics", metrics, answer=str),
)


async def _submit_documents(
    request: Request, lines: Sequence[bytearray]
) -> AsyncIterator[Awaitable[bytes]]:
    """Begin to store the documents of lines, in their order; the answers are awaited."""
    server, peer = request.server, request.visitor.peer
    begun: list[CheckAnswer | fpdb.Document] = []
    adding: list[asyncio.Future[list[Outcome]]] = []
    waiting: list[fpdb.Document] = []
    for line in lines:
        key = None
        try:
            server.require_size(len(line))
            body = _decoded(_check, line)
            key = body.key
            if body.store:
                waiting.append(await server.document_of(peer, body))
                begun.append(waiting[-1])
                continue
            # A look finds what the lines before it have stored, also those of parts before this.
            adding.append(await server.add(peer, waiting))
            waiting = []
            await asyncio.wait(adding[-1:])
            begun.append(await request.read(_look, server, body))
        except _REFUSALS as error:
            begun.append(_refused_check(error, key))
    adding.append(await server.add(peer, waiting))
    yield _finish(request, begun, adding)


async def _finish(
    request: Request,
    begun: Sequence[CheckAnswer | fpdb.Document],
    adding: Sequence[Awaitable[list[Outcome]]],
) -> bytes:
    outcomes = iter([outcome for each in adding for outcome in await each])
    answers: list[CheckAnswer] = []
    for each in begun:
        outcome = each if isinstance(each, CheckAnswer) else next(outcomes)
        if isinstance(outcome, fpdb.FpdbError):
            outcome = _refused_check(outcome, each.key)
        if isinstance(outcome, fpdb.Added):
            outcome = checked(outcome.key, outcome.status, outcome.matches)
        answers.append(outcome)
    return encoded(request, answers)


async def _submit_questions(
    request: Request, lines: Sequence[bytearray]
) -> AsyncIterator[Awaitable[bytes]]:
    """Answer the questions of lines, some at a time; other visitors have turns in between."""
    server = request.server
    questions: list[QueryBody | bytes] = []
    for line in lines:
        try:
            server.require_size(len(line))
            questions.append(_decoded(_query, line))
        except _REFUSALS as error:
            questions.append(_written(_refused_query(error)))
    while questions:
        answers = partial(_answered, server, questions)
        some = await request.answer(answers, _size, _limit(questions[0]))
        del questions[: len(some)]
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        done.set_result(b"".join(some))
        yield done


def _size(answers: Sequence[bytes]) -> int:
    return sum(map(len, answers))


def _limit(question: QueryBody | bytes) -> int:
    return question.limit if isinstance(question, QueryBody) else 0


def _answered(server: Server, questions: Sequence[QueryBody | bytes]) -> list[bytes]:
    """Return the answers to the first of some questions, in a thread that others wait for."""
    until = time.monotonic() + _TURN_SECONDS
    answers: list[bytes] = []
    for question in questions:
        if answers and (time.monotonic() > until or _limit(question) > MANY_MATCHES):
            break
        if isinstance(question, bytes):
            answers.append(question)
            continue
        try:
            answers.append(_encoded_answer(server, question))
        except _REFUSALS as error:
            answers.append(_written(_refused_query(error)))
    return answers


def _written(answer: QueryAnswer) -> bytes:
    return _encode_answer(answer) + b"\n"


def _encoded_answer(server: Server, question: QueryBody) -> bytes:
    """Return the answer to a question, with the end of the line; call it in a thread."""
    if (written := _written_within(server, question)) is None:
        raise ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the answer has more than {server.limits.answer:,} bytes",
            hint="ask for fewer matches by `limit`",
        )
    return written


def _written_within(server: Server, question: QueryBody) -> bytes | None:
    """Return the answer to a question, or None if it is too large."""
    matches, largest = server.near(question), server.limits.answer
    answer = found(matches, server.database.shortfall(question.similarity))
    if question.limit > MANY_MATCHES:  # one that is too large isn't even made
        sizes = accumulate(len(_encode_answer(match)) for match in answer.matches)
        if any(size > largest for size in sizes):
            return None
    written = _written(answer)
    return written if len(written) <= largest else None


def _look(server: Server, body: CheckBody) -> CheckAnswer:
    """Answer what a document resembles, without storing it; it runs in a thread."""
    # Of two matches, one may be the document itself, as it was stored before.
    question = QueryBody(
        text=body.text, html=body.html, fingerprint=body.fingerprint, recipe=body.recipe, limit=2
    )
    matches = server.near(question)
    matches[:] = [match for match in matches if match.key != body.key]
    return checked(body.key, "duplicate" if matches else "new", matches)


def _refused_check(error: Exception, key: str | int | None = None) -> CheckAnswer:
    status = "error" if status_of(error) < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
    return CheckAnswer(key=key, status=status, error=str(error), hint=hint_of(error))


def _refused_query(error: Exception) -> QueryAnswer:
    return QueryAnswer(matches=[], error=str(error), hint=hint_of(error))


def _decoded(decoder: msgspec.json.Decoder[Body], data: bytes | bytearray) -> Body:
    """Decode JSON; raise InputError if it isn't such a document, ProblemError if it isn't JSON."""
    try:
        if len(data) > _SMALL and len(_meta.decode(data).meta) > _META:
            raise fpdb.InputError(
                f"found metadata of more than {_META:,} bytes of JSON, expected fewer",
                hint="keep large metadata elsewhere, under the key",
            )
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise fpdb.InputError(
            str(error), hint="/docs has the fields of each request, and examples"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it has half of a surrogate pair" if _HALF.search(data) else error
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            f"this isn't JSON in UTF-8: {reason}",
            hint="send one JSON object, or one a line as application/x-ndjson",
        ) from None


def _key(request: Request) -> str | int:
    """Return the key in the query of a request."""
    try:
        query = request.scope["query_string"].decode()
        fields = parse_qs(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "the query isn't UTF-8",
            hint="encode the key in UTF-8 before you escape it with percent signs",
        ) from None
    if "key" not in fields:
        raise fpdb.InputError("found no key", hint="/v1/documents?key=… names the document")
    key: str = fields["key"][-1]
    if request.server.database.keys == "text":
        return key
    if not _NUMBER.fullmatch(key):
        raise fpdb.InputError(
            f"found the key {key[:40]!r}, expected a whole number from 0 to 2**64 - 1",
            hint="the keys of this database are integers",
        )
    return int(key)
