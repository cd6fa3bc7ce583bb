"""The calls of the API, version 1, and their table."""

import asyncio
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

import fpdb
from fpdb.integrations.batcher import Outcome
from fpdb.integrations.server.application import MANY_MATCHES, Application, Call, Request
from fpdb.integrations.server.lines import at_once, encoded, is_lines, lines_reply
from fpdb.integrations.server.messages import (
    JSON,
    CheckAnswer,
    CheckBody,
    Content,
    HttpReply,
    ProblemError,
    QueryAnswer,
    QueryBody,
    StoredDocument,
    checked,
    encode,
    encoded_line,
    found,
    json_reply,
    parts_found,
    status_of,
)

Body = TypeVar("Body")
_check = msgspec.json.Decoder(CheckBody)
_query = msgspec.json.Decoder(QueryBody)
_any = msgspec.json.Decoder()
# What is wrong with one line, and not with the server.
_REFUSALS = (fpdb.FpdbError, ProblemError)
# Queries of lines are answered for as long before it is another visitor's turn.
_TURN_SECONDS = 0.02
# The most bytes of metadata as JSON, of which three may become a hundred.
_META = 1 << 19
# In JSON, the first half of a surrogate pair that no second half follows.
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
# Fields of a form on a page of the explorer.
_MOST_FIELDS = 1_000
_NUMBER = re.compile("[0-9]{1,20}")
# `tools/docs --write` makes it of the table of calls.
_DESCRIPTION = Path(__file__).with_name("openapi.json")


async def check(request: Request) -> HttpReply:
    """Look for a document, and store it.

    Stores the document unless it resembles a stored one; both are one transaction.
    """
    if is_lines(request):
        request.require_writer()
        return lines_reply(request, _submit_documents, _refused_check)
    body = _decoded(_check, await request.body())
    if not body.store:
        return json_reply(await request.read(_look, request.application, body))
    request.require_writer()
    adding = await request.application.add(request, [await _document(request, body)])
    [added] = await adding
    if isinstance(added, fpdb.FpdbError):
        raise added
    return json_reply(checked(body.name, added.status, added.matches))


async def query(request: Request) -> HttpReply:
    """Find near documents.

    Finds the stored documents near a text, a page or a fingerprint, or those that have a part of a
    text or a page.
    """
    if is_lines(request):
        return lines_reply(request, _submit_questions, _refused_query)
    question = _decoded(_query, await request.body())
    [written] = await request.answer(
        lambda: [_answer(request.application, question)], question.limit
    )
    return HttpReply(written, headers=JSON)


async def document(request: Request) -> HttpReply:
    """Get a document.

    Returns what is stored of a document; its text isn't.
    """
    database, key = request.application.database, _key(request)
    stored = await request.read(database.get, key)
    if stored is None:
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    names = ("key", "id", "short", "added", "characters", "meta")
    digits = None
    if stored.fingerprint is not None:
        digits = fpdb.format_fingerprint(stored.fingerprint, database.plan.bits)
    given = {name: getattr(stored, name) for name in names}
    return json_reply(StoredDocument(fingerprint=digits, **given))


async def delete(request: Request) -> HttpReply:
    """Delete a document.

    Deletes a document for good.
    """
    request.require_writer()
    key = _key(request)
    if not await request.read(request.application.database.delete, key):
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    return HttpReply(status=HTTPStatus.NO_CONTENT)


async def stats(request: Request) -> HttpReply:
    """Get statistics.

    Returns the size and the settings of the database, as `fpdb stats --json`, with the name of its
    directory only.
    """
    database = request.application.database
    found = dataclasses.asdict(await request.read(database.stats))
    return json_reply(found | {"path": database.path.name})


async def healthz(request: Request) -> HttpReply:
    """Check the server.

    Returns whether the database can be read; it needs no token.
    """
    await request.application.watch(request.application.database.__len__)
    return json_reply({"status": "ok"})


async def metrics(request: Request) -> HttpReply:
    """Get metrics.

    Returns what Prometheus reads.
    """
    written = await request.application.watch(request.application.metrics.written)
    return HttpReply(written, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _openapi(_: Request) -> HttpReply:
    return HttpReply(_DESCRIPTION.read_bytes(), headers=JSON)


async def _favicon(_: Request) -> HttpReply:
    return HttpReply(status=HTTPStatus.NO_CONTENT)


CALLS = (
    Call("POST", "/v1/check", check, CheckBody, CheckAnswer),
    Call("POST", "/v1/query", query, QueryBody, QueryAnswer),
    Call("GET", "/v1/documents", document, answer=StoredDocument, keyed=True),
    Call("DELETE", "/v1/documents", delete, keyed=True),
    Call("GET", "/v1/stats", stats, answer=dict),
    Call("GET", "/healthz", healthz, answer=dict),
    Call("GET", "/metrics", metrics, answer=str),
)
PAGES = (
    Call("GET", "/openapi.json", _openapi),
    Call("GET", "/favicon.ico", _favicon),  # browsers request it by themselves
)


def explorer_calls(explorer: fpdb.Explorer) -> Sequence[Call]:
    """Return the calls that are answered by the pages of an explorer."""

    async def home(_: Request) -> HttpReply:
        return HttpReply(status=HTTPStatus.SEE_OTHER, headers={"Location": "explore/"})

    async def page(request: Request) -> HttpReply:
        posted = request.scope["method"] == "POST"
        data = await request.body() if posted else request.scope["query_string"]
        try:
            fields = parse_qs(
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "the form has too many fields") from None
        answer = partial(
            explorer.answer,
            request.scope["path"].rpartition("/")[2],
            fields,
            session=request.visitor.session,
            posted=posted,
            may_write=request.visitor.role == "write",
        )
        found = await request.read(answer)
        request.application.memory.hold(request, len(found.body))
        return HttpReply(found.body, found.status, found.headers)

    return (
        Call("GET", "/", home),
        Call("GET", "/explore", home),
        Call("GET", "/explore/*", page),
        Call("POST", "/explore/*", page),
    )


async def _submit_documents(
    request: Request, lines: Sequence[bytearray]
) -> AsyncIterator[Awaitable[bytes]]:
    """Begin to store the documents of lines, in their order; the answers are awaited."""
    application = request.application
    begun: list[CheckAnswer | str | int] = []
    adding: list[asyncio.Future[list[Outcome]]] = []
    waiting: list[fpdb.Document] = []
    for line in lines:
        key = None
        try:
            request.require_size(len(line))
            body = _decoded(_check, line)
            key = body.name
            if body.store:
                waiting.append(await _document(request, body))
                begun.append(key)
                continue
            # A look finds what the lines before it have stored, also those of parts before this.
            adding.append(await application.add(request, waiting))
            waiting = []
            await asyncio.wait(adding[-1:])
            begun.append(await request.read(_look, application, body))
        except _REFUSALS as error:
            begun.append(_refused_check(error, key))
    adding.append(await application.add(request, waiting))
    yield _finish(request, begun, adding)


async def _finish(
    request: Request,
    begun: Sequence[CheckAnswer | str | int],
    adding: Sequence[Awaitable[list[Outcome]]],
) -> bytes:
    outcomes = iter([outcome for each in adding for outcome in await each])
    answers: list[CheckAnswer] = []
    for each in begun:
        if isinstance(each, CheckAnswer):
            answers.append(each)
        elif isinstance(outcome := next(outcomes), fpdb.Added):
            answers.append(checked(each, outcome.status, outcome.matches))
        else:
            answers.append(_refused_check(outcome, each))
    return encoded(request, answers)


async def _submit_questions(
    request: Request, lines: Sequence[bytearray]
) -> AsyncIterator[Awaitable[bytes]]:
    """Answer the questions of lines, some at a time; other visitors have turns in between."""
    questions: list[QueryBody | bytes] = []
    for line in lines:
        try:
            request.require_size(len(line))
            questions.append(_decoded(_query, line))
        except _REFUSALS as error:
            questions.append(encoded_line(_refused_query(error)))
    while questions:
        answers = partial(_answered, request.application, questions)
        some = await request.answer(answers, _limit(questions[0]))
        del questions[: len(some)]
        yield at_once(b"".join(some))


def _limit(question: QueryBody | bytes) -> int:
    return question.limit if isinstance(question, QueryBody) else 0


def _answered(application: Application, questions: Sequence[QueryBody | bytes]) -> list[bytes]:
    """Return the answers to the first of some questions, in a thread that others wait for."""
    until = time.monotonic() + _TURN_SECONDS
    answers: list[bytes] = []
    for question in questions:
        if answers and (time.monotonic() > until or _limit(question) > MANY_MATCHES):
            break
        try:
            answers.append(
                question if isinstance(question, bytes) else _answer(application, question)
            )
        except _REFUSALS as error:
            answers.append(encoded_line(_refused_query(error)))
    return answers


def _answer(application: Application, question: QueryBody) -> bytes:
    """Return the answer to a question, with the end of the line; call it in a thread."""
    # The error must not refer to a frame that has the matches, which would be kept with it.
    if (written := _written_within(application, question)) is None:
        raise ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the answer has more than {application.limits.answer:,} bytes",
            hint="ask for fewer matches by `limit`",
        )
    return written


def _written_within(application: Application, question: QueryBody) -> bytes | None:
    """Return the answer to a question, or None if it is too large."""
    largest = application.limits.answer
    if question.passages:
        answer = parts_found(_parts(application, question))
    else:
        answer = found(
            _near(application, question), application.database.shortfall(question.similarity)
        )
    if question.limit > MANY_MATCHES:  # one that is too large isn't even made
        sizes = accumulate(len(encode(match)) for match in answer.matches)
        if any(size > largest for size in sizes):
            return None
    written = encoded_line(answer)
    return written if len(written) <= largest else None


def _look(application: Application, body: CheckBody) -> CheckAnswer:
    """Answer what a document resembles, without storing it; it runs in a thread."""
    # Of two matches, one may be the document itself, as it was stored before.
    question = QueryBody(
        text=body.text, html=body.html, fingerprint=body.fingerprint, recipe=body.recipe, limit=2
    )
    matches = _near(application, question)
    key = _stored_key(application.database, body.name)
    matches[:] = [match for match in matches if match.key != key]
    return checked(body.name, "duplicate" if matches else "new", matches)


async def _document(request: Request, body: CheckBody) -> fpdb.Document:
    """Return the document to store."""
    database = request.application.database
    number, key = _number(database, body), _stored_key(database, body.name)
    if len(body.meta) > _META:
        raise fpdb.InputError(
            f"found metadata of more than {_META:,} bytes of JSON, expected fewer",
            hint="keep large metadata elsewhere, under the key",
        )
    meta = _decoded(_any, body.meta) if body.meta else None
    if body.html is not None:
        page = await request.read(fpdb.html_text, body.html)
        return fpdb.Document(key, page.text, meta, number)
    document = fpdb.Document(key, body.text, meta, number)
    database.preparer.watched([document])
    return document


def _stored_key(database: fpdb.Database, key: str | int) -> str | int:
    """Return a key of the kind of the database, as `follow` does."""
    if database.key_type == "text":
        return str(key)
    return int(key) if isinstance(key, str) and _NUMBER.fullmatch(key) else key


def _near(application: Application, question: QueryBody) -> fpdb.Matches:
    """Find the stored documents near a text, a page or a fingerprint; call it in a thread."""
    database, k, limit = application.database, question.k, question.limit
    number = _number(database, question)
    if question.least is not None:
        raise fpdb.InputError(
            "found least without passages, expected both", hint="add passages: true"
        )
    if number is None:
        similarity = question.similarity or (application.similarity if k is None else None)
        return database.query(_text(question), similarity=similarity, k=k, limit=limit)
    if question.similarity is not None:
        raise fpdb.InputError(
            "found a similarity and a ready fingerprint, expected a text, which alone has one",
            hint="leave similarity out, or query with k",
        )
    return database.query_fingerprint(number, k=k, limit=limit)


def _parts(application: Application, question: QueryBody) -> fpdb.models.PartMatches:
    """Find the stored documents that have a part of a text or a page; call it in a thread."""
    ready = _number(application.database, question) is not None
    if ready or question.k is not None or question.similarity is not None:
        raise fpdb.InputError(
            "found passages with a fingerprint, a similarity or a k, expected none of these",
            hint="passages are looked up by a text or html, and `least`",
        )
    least = question.least or 0.0
    return application.database.passages(_text(question), least=least, limit=question.limit)


def _text(content: Content) -> str:
    return content.text or "" if content.html is None else fpdb.html_text(content.html).text


def _number(database: fpdb.Database, content: Content) -> int | None:
    """Return the fingerprint of a content that fits the database, if that is what it has."""
    given = [content.text, content.html, content.fingerprint]
    if given.count(None) != len(given) - 1:
        raise fpdb.InputError(
            f"found {len(given) - given.count(None)} of text, html and fingerprint, expected "
            "one of them",
            hint="a text is what the recipe is made for",
        )
    if content.recipe not in {None, database.recipe.id}:
        raise fpdb.RecipeMismatchError(
            f"the database has the recipe {database.recipe.id}, found {content.recipe}",
            hint="make fingerprints by the recipe of the database, or send texts",
        )
    digits = content.fingerprint
    return None if digits is None else fpdb.parse_fingerprint(digits, database.plan.bits)


def _refused_check(error: Exception, key: str | int | None = None) -> CheckAnswer:
    status, hint = status_of(error)
    name = "error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
    return CheckAnswer(key=key, status=name, error=str(error), hint=hint)


def _refused_query(error: Exception) -> QueryAnswer:
    return QueryAnswer(matches=[], error=str(error), hint=status_of(error)[1])


def _decoded(decoder: msgspec.json.Decoder[Body], data: bytes | bytearray | msgspec.Raw) -> Body:
    """Decode JSON; raise InputError if it isn't what is expected, ProblemError if it isn't JSON."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise fpdb.InputError(
            str(error), hint="/openapi.json has the fields of each request, and examples"
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
    if request.application.database.key_type == "text":
        return key
    if not _NUMBER.fullmatch(key):
        raise fpdb.InputError(
            f"found the key {key[:40]!r}, expected a whole number from 0 to 2**64 - 1",
            hint="the keys of this database are integers",
        )
    return int(key)
