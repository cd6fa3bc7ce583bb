"""The calls of the API, version 1, and their table."""

import asyncio
import dataclasses
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import parse_qs

import msgspec

import fpdb
from fpdb.integrations.batcher import Outcome
from fpdb.integrations.server.application import Application, Call, Request
from fpdb.integrations.server.lines import LINES, encode_lines, lines_reply, media_type
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
    encoded_line,
    found,
    json_reply,
    status_name,
    status_of,
)

Body = TypeVar("Body")
_check = msgspec.json.Decoder(CheckBody)
_query = msgspec.json.Decoder(QueryBody)
_any = msgspec.json.Decoder()
# Answers with more matches are made one at a time, as a match may take 64 KiB.
_MANY = 100
# Answers to lines of queries are sent after this time, or this number of bytes.
_TURN_SECONDS, _TURN_BYTES = 0.02, 1 << 20
# The most bytes of metadata as JSON, of which three may become a hundred.
_META = 1 << 19
_NUMBER = re.compile("[0-9]{1,20}")
_CONTENTS = ("text", "html", "fingerprint")
_UNKNOWN = re.compile("unknown field `(.*)`", re.DOTALL)
# Characters of the name of a field, and of a message that repeats it.
_LONGEST_NAME, _LONGEST_MESSAGE = 40, 200
# `tools/docs --write` makes it of the table of calls.
_DESCRIPTION = Path(__file__).with_name("openapi.json").read_bytes()


async def check(request: Request) -> HttpReply:
    """Look for a document, and store it.

    Stores the document unless it resembles a stored one; both are one transaction.
    """
    kind = media_type(request)
    if kind in LINES:
        request.require_writer()
        return lines_reply(request, _submit_documents, _refused_check)
    if kind == b"text/html":
        body = await _page(request)
    else:
        body = _decoded(_check, await request.body())
    if not body.store:
        return json_reply(await request.read(_look, request.application, body))
    request.require_writer()
    document = await _document(request, body)
    [added] = await request.application.add([document], request.deadline)
    if isinstance(added, fpdb.FpdbError):
        raise added
    answer = checked(body.name, added.status, added.matches, added.group, document.text)
    return json_reply(answer)


async def query(request: Request) -> HttpReply:
    """Find near documents.

    Finds the stored documents near a text, a page or a fingerprint, or those with passages of a
    text or a page.
    """
    if media_type(request) in LINES:
        return lines_reply(request, _submit_questions, _refused_query)
    question = _decoded(_query, await request.body())
    written = await request.read(_answer, request.application, question)
    request.hold(len(written))
    return HttpReply(written, headers=JSON)


async def document(request: Request) -> HttpReply:
    """Get a document.

    Returns what is stored of a document; its text isn't.
    """
    database, key = request.application.database, _key(request)
    stored = await request.read(database.get, key)
    if stored is None:
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    fields = {name: getattr(stored, name) for name in StoredDocument.__struct_fields__}
    if stored.group is None:
        del fields["group"]
    if stored.fingerprint is not None:
        fields["fingerprint"] = fpdb.format_fingerprint(stored.fingerprint, database.plan.bits)
    return json_reply(fields)


async def delete(request: Request) -> HttpReply:
    """Delete a document.

    Deletes a document for good.
    """
    request.require_writer()
    key = _key(request)
    if not await request.write(request.application.database.delete, key):
        raise fpdb.DocumentNotFoundError(f"found no document with the key {key!r}")
    return HttpReply(status=HTTPStatus.NO_CONTENT)


async def stats(request: Request) -> HttpReply:
    """Get statistics.

    Returns the size and the settings of the database, as `fpdb stats --json`, with the name of its
    directory only.
    """
    database = request.application.database
    about = dataclasses.asdict(await request.read(database.stats))
    return json_reply(about | {"path": database.path.name})


async def healthz(request: Request) -> HttpReply:
    """Check the server.

    Returns whether the database can be read, and no damage was met; it needs no token.
    """
    database = request.application.database
    await request.read(database.__len__)
    if database.damage:
        raise fpdb.DamagedError(database.damage)
    return json_reply({"status": "ok"})


async def metrics(request: Request) -> HttpReply:
    """Get metrics.

    Returns what Prometheus reads.
    """
    written = await request.read(request.application.metrics.written)
    return HttpReply(written, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _openapi(_: Request) -> HttpReply:
    return HttpReply(_DESCRIPTION, headers=JSON)


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
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000
            )
        except ValueError:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "the form has too many fields") from None
        name, (role, session) = request.scope["path"].rpartition("/")[2], request.visitor
        answer = partial(explorer.answer, posted=posted, may_write=role == "write", session=session)
        shown = await (request.write if posted else request.read)(answer, name, fields)
        request.hold(len(shown.body))
        return HttpReply(shown.body, shown.status, shown.headers)

    return (
        *(Call("GET", path, home) for path in ("/", "/explore")),
        Call("GET", "/explore/*", page),
        Call("POST", "/explore/*", page),
    )


async def _submit_documents(
    request: Request, lines: Sequence[bytearray]
) -> AsyncGenerator[bytes, None]:
    """Store the documents of lines, in their order."""
    application = request.application
    begun: list[CheckAnswer | tuple[str | int, str | None]] = []
    adding: list[Awaitable[list[Outcome]]] = []
    waiting: list[fpdb.Document] = []
    for line in lines:
        key = None
        request.renew()
        try:
            request.require_size(len(line))
            body = _decoded(_check, line)
            key = body.name
            if body.store:
                waiting.append(await _document(request, body))
                begun.append((key, waiting[-1].text))
                continue
            # A look finds what the lines before it have stored, also those of parts before this.
            looked = application.add(waiting, request.deadline)
            adding.append(looked)
            waiting = []
            await asyncio.wait([looked])
            begun.append(await request.read(_look, application, body))
        except fpdb.FpdbError as error:
            begun.append(_refused_check(error, key))
        except TimeoutError:  # the lines before it may be stored, and have their answers
            begun.append(_refused_check(TimeoutError("it took too long"), key))
    adding.append(application.add(waiting, request.deadline))
    answered = [answer for answer in begun if isinstance(answer, CheckAnswer)]
    application.metrics.count_checked(answer.status for answer in answered if answer.error)
    yield b""
    outcomes = iter([outcome for added in adding for outcome in await added])
    answers: list[CheckAnswer] = []
    for answer in begun:
        if isinstance(answer, CheckAnswer):
            answers.append(answer)
            continue
        key, text = answer
        if isinstance(outcome := next(outcomes), fpdb.Added):
            answers.append(checked(key, outcome.status, outcome.matches, outcome.group, text))
        else:
            answers.append(_refused_check(outcome, key))
    yield encode_lines(answers)


async def _submit_questions(
    request: Request, lines: Sequence[bytearray]
) -> AsyncGenerator[bytes, None]:
    """Answer the questions of lines, some at a time."""
    yield b""
    while lines:
        request.renew()
        answers = await request.read(_answered, request, lines)
        lines = lines[len(answers) :]
        yield b"".join(answers)


def _answered(request: Request, lines: Sequence[bytearray]) -> list[bytes]:
    """Return the answers to the first of some lines; call it in a thread."""
    until, size = time.monotonic() + _TURN_SECONDS, 0
    answers: list[bytes] = []
    for line in lines:
        try:
            request.require_size(len(line))
            answers.append(_answer(request.application, _decoded(_query, line)))
        except fpdb.FpdbError as error:
            answers.append(encoded_line(_refused_query(error)))
        size += len(answers[-1])
        if time.monotonic() > until or size > _TURN_BYTES:
            break
    return answers


def _answer(application: Application, question: QueryBody) -> bytes:
    """Return the answer to a question, with the end of the line; call it in a thread."""
    # The error doesn't refer to the matches, which would be kept with it.
    with application.alone if question.limit > _MANY else nullcontext():
        written = encoded_line(_answer_of(application, question))
    if len(written) > application.limits.answer:
        raise ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the answer has more than {application.limits.answer:,} bytes",
            hint="ask for fewer matches by `limit`",
        )
    return written


def _answer_of(application: Application, question: QueryBody) -> QueryAnswer:
    database = application.database
    if not question.passages:
        return found(_near(application, question), database.shortfall(question.similarity))
    _number(database, question)
    least = question.least or 0.0
    return found(database.passages(_text(question), least=least, limit=question.limit))


def _look(application: Application, body: CheckBody) -> CheckAnswer:
    """Answer what a document resembles, without storing it; it runs in a thread."""
    # Of two matches, one may be the document itself, as it was stored before.
    question = QueryBody(
        text=body.text, html=body.html, fingerprint=body.fingerprint, recipe=body.recipe, limit=2
    )
    matches = _near(application, question)
    key = _stored_key(application, body.name)
    matches[:] = [match for match in matches if match.key != key]
    group = matches[0].group if matches else None
    return checked(body.name, "duplicate" if matches else "new", matches, group)


async def _page(request: Request) -> CheckBody:
    """Return the check of a body that is a page, as its server sent it."""
    fields, body = _fields(request), await request.body()
    kind = request.headers[b"content-type"].decode("latin-1")
    if unknown := set(fields) - {"key", "store"}:
        raise fpdb.InputError(
            f"found {min(unknown)[:_LONGEST_NAME]!r} after ?, expected key and store",
            hint="send meta with the page as JSON",
        )
    name = _named(fields)
    page = await request.read(partial(fpdb.html_text, body, content_type=kind))
    return CheckBody(key=name, text=page.text, store=fields.get("store", [""])[-1] != "false")


async def _document(request: Request, body: CheckBody) -> fpdb.Document:
    database = request.application.database
    number, key = _number(database, body), _stored_key(request.application, body.name)
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


def _stored_key(application: Application, key: str | int) -> str | int:
    """Return a key of the kind of the database, as `follow` does."""
    if application.key_type == "text":
        return str(key)
    return int(key) if isinstance(key, str) and _NUMBER.fullmatch(key) else key


def _near(application: Application, question: QueryBody) -> fpdb.Matches:
    """Find the stored documents near a text, a page or a fingerprint; call it in a thread."""
    database, k, limit = application.database, question.k, question.limit
    number = _number(database, question)
    if number is not None:
        return database.query_fingerprint(number, k=k, limit=limit)
    similarity = question.similarity or (application.similarity if k is None else None)
    return database.query(_text(question), similarity=similarity, k=k, limit=limit)


def _text(content: Content) -> str:
    return content.text or "" if content.html is None else fpdb.html_text(content.html).text


def _number(database: fpdb.Database, content: Content) -> int | None:
    """Return the fingerprint of a content that fits the database, if that is what it has."""
    if [content.text, content.html, content.fingerprint].count(None) != 2:
        names = [name for name in _CONTENTS if getattr(content, name) is not None]
        raise fpdb.InputError(
            f"found {' and '.join(names) or 'no content'}, expected text, html or fingerprint",
            hint="send the text, from which the server makes the fingerprint",
        )
    if content.recipe is not None and content.recipe != database.recipe.id:
        raise fpdb.RecipeMismatchError(
            f"the database has the recipe {database.recipe.id}, found {content.recipe}",
            hint="make fingerprints by the recipe of the database, or send texts",
        )
    digits = content.fingerprint
    return None if digits is None else fpdb.parse_fingerprint(digits, database.plan.bits)


def _refused_check(error: Exception, key: str | int | None = None) -> CheckAnswer:
    hint = status_of(error)[1]
    return CheckAnswer(key=key, status=status_name(error), error=str(error), hint=hint)


def _refused_query(error: Exception) -> QueryAnswer:
    return QueryAnswer(matches=[], error=str(error), hint=status_of(error)[1])


def _decoded(decoder: msgspec.json.Decoder[Body], data: bytes | bytearray | msgspec.Raw) -> Body:
    """Decode JSON; raise InputError if it isn't what is expected, ProblemError if it isn't JSON."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        hint = "/openapi.json has the fields of each request, and examples"
        if unknown := _UNKNOWN.search(str(error)):
            kind = cast("type[msgspec.Struct]", decoder.type)
            hint = _hint(unknown[1][:_LONGEST_NAME], kind.__struct_fields__)
        raise fpdb.InputError(str(error)[:_LONGEST_MESSAGE], hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            f"this isn't JSON in UTF-8: {error}",
            hint="send one JSON object, or one a line, without halves of surrogate pairs",
        ) from None


@lru_cache
def _hint(unknown: str, fields: Sequence[str]) -> str:
    close = get_close_matches(unknown, fields, 1)
    listed = f"the fields are {', '.join(fields)}; put others into meta"
    return f"did you mean {close[0]}?" if close else listed


def _key(request: Request) -> str | int:
    return _stored_key(request.application, _named(_fields(request)))


def _fields(request: Request) -> dict[str, list[str]]:
    """Return what is after the path."""
    try:
        query = request.scope["query_string"].decode()
        return parse_qs(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST,
            "the query isn't UTF-8",
            hint="encode the key in UTF-8 before you escape it with percent signs",
        ) from None


def _named(fields: Mapping[str, Sequence[str]]) -> str:
    if "key" not in fields:
        raise fpdb.InputError("found no key", hint="?key=… after the path names the document")
    return fields["key"][-1]
