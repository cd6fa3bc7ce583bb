"""Replies to requests; errors are problem details (RFC 9457), with the message and the hint."""

from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

import fpdb
from fpdb.integrations.server.messages import ProblemDetails

# Makes a page of a message, its hint and its status, which has a body and headers.
PageMaker = Callable[[str, str, int], Any]
encode = msgspec.json.Encoder().encode
JSON = {"Content-Type": "application/json"}
# The first class of an error gives the status, and a hint if its own cures it in this process.
_STATUSES: tuple[tuple[type[Exception], HTTPStatus, str], ...] = (
    (fpdb.DocumentNotFoundError, HTTPStatus.NOT_FOUND, ""),
    (fpdb.RecipeMismatchError, HTTPStatus.CONFLICT, ""),
    (fpdb.InputError, HTTPStatus.UNPROCESSABLE_ENTITY, ""),
    (fpdb.PlanError, HTTPStatus.UNPROCESSABLE_ENTITY, ""),
    (fpdb.RecipeError, HTTPStatus.UNPROCESSABLE_ENTITY, ""),
    (fpdb.ReadOnlyError, HTTPStatus.FORBIDDEN, "this server only answers queries"),
    (fpdb.MissingExtraError, HTTPStatus.NOT_IMPLEMENTED, ""),
    (fpdb.ClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "try again once the database is back"),
    (Exception, HTTPStatus.SERVICE_UNAVAILABLE, ""),
)


class HttpReply(NamedTuple):
    """What a request is answered with; a body of parts is sent part by part."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}


class ProblemError(Exception):
    """A request that gets a problem in place of an answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.hint = hint
        self.headers = headers or {}


def encoded_line(value: Any) -> bytes:
    """Return a value as JSON, with the end of the line for those who call it in a terminal."""
    return encode(value) + b"\n"


def json_reply(value: Any) -> HttpReply:
    """Return a reply of JSON."""
    return HttpReply(encoded_line(value), headers=JSON)


def status_of(error: Exception) -> tuple[HTTPStatus, str | None]:
    """Return the status of the reply to a request that raised an error, and what cures that."""
    if isinstance(error, ProblemError):
        return error.status, error.hint or None
    _, status, hint = next(row for row in _STATUSES if isinstance(error, row[0]))
    return status, hint or getattr(error, "hint", "") or None


def problem_reply(error: Exception, page: PageMaker | None = None) -> HttpReply:
    """Return the reply to a request that raised an error; a page for a person with a browser."""
    status, hint = status_of(error)
    detail = str(error) or "the request took too long"
    headers = {"Content-Type": "application/problem+json", **getattr(error, "headers", {})}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    if page:
        shown = page(detail, hint or "", status.value)
        return HttpReply(shown.body, status, {**headers, **shown.headers})
    details = ProblemDetails(title=status.phrase, status=status.value, detail=detail, hint=hint)
    return HttpReply(encoded_line(details), status, headers)
