"""What requests and answers hold: checked while it is decoded, and described by openapi.json."""

from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

import fpdb

# Makes a page of a message, its hint and its status, which has a body and headers.
PageMaker = Callable[[str, str, int], Any]
encode = msgspec.json.Encoder().encode
JSON = {"Content-Type": "application/json"}
# The first class of an error gives the status, and a hint if its own cures it in this process.
_STATUSES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], HTTPStatus, str], ...] = (
    (fpdb.DocumentNotFoundError, HTTPStatus.NOT_FOUND, ""),
    (fpdb.RecipeMismatchError, HTTPStatus.CONFLICT, ""),
    ((fpdb.InputError, fpdb.PlanError, fpdb.RecipeError), HTTPStatus.UNPROCESSABLE_ENTITY, ""),
    (fpdb.ReadOnlyError, HTTPStatus.FORBIDDEN, "this server only answers queries"),
    (fpdb.MissingExtraError, HTTPStatus.NOT_IMPLEMENTED, ""),
    (fpdb.ClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "try again once the database is back"),
    (Exception, HTTPStatus.SERVICE_UNAVAILABLE, ""),
)
# The least share of characters that couldn't be decoded of which an answer speaks.
_REPLACED = 0.01
_Digits = Annotated[
    str,
    Meta(
        pattern="^(0[xX])?[0-9a-fA-F]{1,32}$",
        description="a fingerprint in hexadecimal digits, of the width of the database",
    ),
]
_DocumentKey = Annotated[
    str | int,
    Meta(description="the name of the document: text, or a number where keys are integers"),
]


class Content(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A text, HTML or a ready fingerprint: exactly one of the three.

    As in files, a text may be called content or body, and a key id or url, where key and text are
    missing. A query ignores the key and meta, so that it may be the line of a check; fields with
    other names are refused.
    """

    text: Annotated[str | None, Meta(description="the text; or content, or body")] = None
    content: str | None = None
    body: str | None = None
    html: Annotated[str | None, Meta(description="a page; its main content is the text")] = None
    fingerprint: _Digits | None = None
    recipe: Annotated[
        str | None, Meta(description="the id of the recipe that the database should have")
    ] = None
    key: Annotated[
        str | int | None,
        Meta(description="the name of the document, or id, or url; a number may be a text"),
    ] = None
    id: str | int | None = None
    url: str | int | None = None
    # As it came, since three bytes of JSON may become a hundred.
    meta: Annotated[Raw, Meta(description="any JSON value, to keep with the document")] = field(
        default_factory=Raw
    )

    def __post_init__(self) -> None:
        if self.text is None:
            self.text = self.body if self.content is None else self.content


class CheckBody(Content, kw_only=True):
    """A document to look for, and to store if nothing resembles it."""

    store: Annotated[bool, Meta(description="false: only look, store nothing")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key is None:
            self.key = self.url if self.id is None else self.id
        if self.key is None:
            raise ValueError("Object missing required field `key`, or `id`, or `url`")

    @property
    def name(self) -> str | int:
        """The key, as it came."""
        return "" if self.key is None else self.key


class QueryBody(Content, kw_only=True):
    """What to find stored documents near."""

    similarity: (
        Annotated[float, Meta(gt=0, le=1, description="the least Jaccard similarity")] | None
    ) = None
    k: (
        Annotated[int, Meta(ge=0, le=128, description="compare bits: the largest distance")] | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="the most matches to return")] = 10
    passages: Annotated[bool, Meta(description="true: find what has passages of the text")] = False
    least: (
        Annotated[float, Meta(ge=0, le=1, description="of passages: the least share of either")]
        | None
    ) = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least is not None and not self.passages:
            raise ValueError("found least without passages, expected `passages` to be true")
        if self.fingerprint is not None and self.similarity is not None:
            raise ValueError("found a similarity and a ready fingerprint, which alone has none")
        if self.passages and (self.fingerprint, self.k, self.similarity) != (None, None, None):
            raise ValueError(
                "found passages with a fingerprint, a similarity or a k, expected none"
            )


class CheckAnswer(Struct, kw_only=True, omit_defaults=True):
    """What became of a document."""

    key: _DocumentKey | None
    status: Annotated[
        str,
        Meta(
            description="added, replaced, unchanged, duplicate, short, or with store: false new or "
            "duplicate; in a line of many also error (never stored) or failed (send it again)"
        ),
    ]
    duplicate_of: Annotated[
        _DocumentKey | None, Meta(description="the key of the nearest stored document")
    ] = None
    distance: Annotated[int | None, Meta(description="the bits that differ")] = None
    similarity: Annotated[float | None, Meta(description="the estimated similarity")] = None
    group: Annotated[
        _DocumentKey | None, Meta(description="the keeper of its group, where groups are kept")
    ] = None
    complete: Annotated[bool, Meta(description="false: something similar may be missing")] = True
    replaced_characters: Annotated[
        int, Meta(description="U+FFFD in the text, from 1 % on: the page was decoded wrongly")
    ] = 0
    error: Annotated[str | None, Meta(description="of a line: what is wrong with it")] = None
    hint: Annotated[str | None, Meta(description="of a line: what cures that")] = None


class Near(Struct, kw_only=True, omit_defaults=True):
    """A stored document near a query, or one with passages of it."""

    key: _DocumentKey
    distance: Annotated[int | None, Meta(description="the bits that differ")] = None
    similarity: Annotated[float | None, Meta(description="the estimated similarity")] = None
    words: Annotated[int | None, Meta(description="of passages: about the words in both")] = None
    share: Annotated[float | None, Meta(description="of passages: of the query")] = None
    other_share: Annotated[float | None, Meta(description="of passages: of the document")] = None
    meta: Any = None
    group: Annotated[_DocumentKey | None, Meta(description="the keeper of its group")] = None


class QueryAnswer(Struct, kw_only=True, omit_defaults=True):
    """The stored documents near a query, the nearest first, or those with the longest passages."""

    matches: list[Near]
    boilerplate: Annotated[
        int, Meta(description="words in passages that too many documents have")
    ] = 0
    complete: Annotated[bool, Meta(description="false: something similar may be missing")] = True
    error: str | None = None
    hint: str | None = None


class StoredDocument(Struct, kw_only=True):
    """A document as it is stored; its text isn't."""

    key: _DocumentKey
    id: int | None
    fingerprint: _Digits | None
    short: bool
    added: Annotated[int | None, Meta(description="in seconds since 1970")]
    characters: int
    meta: Any
    group: Annotated[
        _DocumentKey | UnsetType, Meta(description="the keeper of its group, where they are kept")
    ] = UNSET


class ProblemDetails(Struct, kw_only=True, omit_defaults=True):
    """What is wrong with a request (RFC 9457)."""

    title: str
    status: int
    detail: str
    hint: str | None = None


def checked(
    key: str | int,
    status: str,
    matches: fpdb.Matches,
    group: str | int | None = None,
    text: str | None = None,
) -> CheckAnswer:
    """Return what became of a document with a text; of a duplicate, also what it resembles."""
    answer = CheckAnswer(key=key, status=status, complete=matches.complete, group=group)
    if text and (replaced := text.count("\ufffd")) >= len(text) * _REPLACED:
        answer.replaced_characters = replaced
    if status == "duplicate":
        nearest = matches[0]
        answer.duplicate_of, answer.distance = nearest.key, nearest.distance
        answer.similarity = nearest.similarity
    return answer


def found(matches: fpdb.Matches | fpdb.models.PartMatches, short: str = "") -> QueryAnswer:
    """Return the answer to a query, and why the database may miss some, if it is `short`."""
    rows = [match._asdict() for match in matches]
    left_out = {"id", "exact"}
    near = [Near(**{name: row[name] for name in row if name not in left_out}) for row in rows]
    hint = f"the database {short}" if short else None
    answer = QueryAnswer(matches=near, complete=matches.complete, hint=hint)
    if isinstance(matches, fpdb.models.PartMatches):
        answer.boilerplate = matches.boilerplate
    return answer


class HttpReply(NamedTuple):
    """What a request is answered with; a body of parts is sent part by part."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}


class ProblemError(fpdb.FpdbError):
    """A request that gets a problem in place of an answer."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, hint: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(detail, hint=hint)
        self.status, self.headers = status, headers


def encoded_line(value: Any) -> bytes:
    """Return a value as JSON, with the end of the line for those who call it in a terminal."""
    return encode(value) + b"\n"


def json_reply(value: Any) -> HttpReply:
    return HttpReply(encoded_line(value), headers=JSON)


def status_of(error: Exception) -> tuple[HTTPStatus, str | None]:
    """Return the status of the reply to a request that raised an error, and what cures that."""
    if isinstance(error, ProblemError):
        return error.status, error.hint or None
    _, status, hint = next(row for row in _STATUSES if isinstance(error, row[0]))
    return status, hint or getattr(error, "hint", "") or None


def status_name(error: Exception) -> str:
    """Return the status of a document that wasn't stored: whether sending it again may help."""
    return "error" if status_of(error)[0] < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"


def problem_reply(error: Exception, page: PageMaker | None = None) -> HttpReply:
    """Return the reply to a request that raised an error; a page for a person with a browser."""
    status, hint = status_of(error)
    detail = str(error) or "the request took too long"
    headers = {"Content-Type": "application/problem+json", **getattr(error, "headers", {})}
    # Nobody cures damage by waiting.
    if status == HTTPStatus.SERVICE_UNAVAILABLE and not isinstance(error, fpdb.DamagedError):
        headers["Retry-After"] = "1"
    if page:
        shown = page(detail, hint or "", status.value)
        return HttpReply(shown.body, status, {**headers, **shown.headers})
    details = ProblemDetails(title=status.phrase, status=status.value, detail=detail, hint=hint)
    return HttpReply(encoded_line(details), status, headers)
