"""Errors as problem details (RFC 9457), with the message and the hint of fpdb."""

from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import fpdb
from fpdb.integrations.server.messages import ProblemDetails

# What a client reads before it tries again.
RETRY_SECONDS = 1
_TRY_AGAIN = {"Retry-After": str(RETRY_SECONDS)}
# The first class that an error is one of gives the status; others are the server's own fault.
_STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (fpdb.DocumentNotFoundError, HTTPStatus.NOT_FOUND),
    (fpdb.RecipeMismatchError, HTTPStatus.CONFLICT),
    (fpdb.InputError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (fpdb.PlanError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (fpdb.RecipeError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (fpdb.ReadOnlyError, HTTPStatus.FORBIDDEN),
    (fpdb.MissingExtraError, HTTPStatus.NOT_IMPLEMENTED),
    (fpdb.FpdbError, HTTPStatus.SERVICE_UNAVAILABLE),
    (TimeoutError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class ProblemError(Exception):
    """A request that gets a problem in place of an answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        hint: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.hint = hint
        self.headers = headers


def status_of(error: Exception) -> HTTPStatus:
    """Return the status of the answer to a request that raised an error."""
    if isinstance(error, ProblemError):
        return error.status
    if isinstance(error, HTTPException):
        return HTTPStatus(error.status_code)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def response_to(error: Exception) -> Response:
    """Return the response to a request that raised an error."""
    status = status_of(error)
    detail, headers = str(error), getattr(error, "headers", None)
    if isinstance(error, HTTPException):
        detail = error.detail
    elif status == HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = "the server failed; its log says more"
    elif isinstance(error, TimeoutError) and not detail:
        detail = "the request took too long"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers = _TRY_AGAIN | (headers or {})
    details = ProblemDetails(
        title=status.phrase,
        status=status.value,
        detail=detail,
        hint=getattr(error, "hint", "") or None,
    )
    return Response(
        msgspec.json.encode(details) + b"\n", status, headers, media_type="application/problem+json"
    )


async def handle(_: Request, error: Exception) -> Response:
    """Answer a request that raised an error, as Starlette calls it."""
    return response_to(error)
