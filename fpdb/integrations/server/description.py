"""The description of the API: OpenAPI at `/openapi.json`, and the same as a page at `/docs`.

It is made of the table of calls, their docstrings, and the types of requests and answers.
"""

import inspect
import json
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

import fpdb
from fpdb.integrations.server.calls import CALLS, Call
from fpdb.integrations.server.messages import EXAMPLES, ProblemDetails
from fpdb.integrations.server.replies import HttpReply, json_reply
from fpdb.integrations.server.server import Request
from fpdb.markup import element

_PROBLEMS = {
    400: "No JSON in UTF-8.",
    401: "No token, or an unknown one.",
    403: "The token may only read, the database is read-only, or a page of another site asks.",
    404: "There is no such document.",
    409: "The database has another recipe.",
    413: "The body is too large.",
    422: "A field is missing, unknown, or has a value that can't be used.",
    501: "The server has no package that reads HTML.",
    503: "Too much is in flight, or the database can't be used now: try again after Retry-After.",
}
# By any call, with a body, and with a key.
_ANY, _OF_BODY, _OF_KEY = {401, 403, 503}, {400, 409, 413, 422, 501}, {404, 422}
_LINES = (
    " With the type application/x-ndjson, each line is such an object, and so is each line of the "
    "answer, in the same order while they come."
)
_KEY = {
    "name": "key",
    "in": "query",
    "required": True,
    "schema": {"type": "string"},
    "description": "the key of the document",
    "example": "https://a.example/kites",
}


@cache
def openapi() -> dict[str, Any]:
    """Return the description of all calls; the schemas are those that check requests."""
    _, schemas = msgspec.json.schema_components(
        tuple(EXAMPLES), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = _described(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fpdb",
            "version": fpdb.__version__,
            "description": "Finds near-duplicate documents. What is answered is stored for good.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(call: Call) -> dict[str, Any]:
    summary, _, text = (inspect.getdoc(call.reply) or "").partition("\n\n")
    statuses = _ANY | (_OF_BODY if call.body else set()) | (_OF_KEY if call.keyed else set())
    problem = _content(ProblemDetails, "application/problem+json")
    responses = {
        str(status): {"description": _PROBLEMS[status], "content": problem}
        for status in sorted(statuses)
    }
    good: dict[str, Any] = {"description": "It is done."}
    if call.answer:
        good = {"description": "The answer.", "content": _content(call.answer, lines=call.body)}
    described: dict[str, Any] = {
        "summary": summary.rstrip("."),
        "description": " ".join(text.split()) + (_LINES if call.body else ""),
        "responses": {"200" if call.answer else "204": good, **responses},
    }
    if call.keyed:
        described["parameters"] = [_KEY]
    if call.body:
        content = _content(call.body, lines=call.body)
        described["requestBody"] = {"required": True, "content": content}
    return described


def _content(
    kind: type, media: str = "application/json", *, lines: object = None
) -> dict[str, Any]:
    if kind not in EXAMPLES:
        plain = kind is str
        return {
            "text/plain" if plain else media: {"schema": {"type": "string" if plain else "object"}}
        }
    example = msgspec.to_builtins(EXAMPLES[kind])
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    content: dict[str, Any] = {media: {"schema": schema, "example": example}}
    if lines:
        line = f"{json.dumps(example)}\n"
        content["application/x-ndjson"] = {"schema": {"type": "string"}, "example": line}
    return content


_PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>fpdb: the API</title>
<meta name=viewport content="width=device-width">
<style>
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
pre { background: #8882; overflow: auto; padding: .7rem }
:root { color-scheme: light dark }
</style>
"""


@cache
def page() -> str:
    """Return the description as one HTML page, which needs no other file."""
    described = openapi()
    parts = [
        element("h1", f"fpdb {fpdb.__version__}"),
        element("p", described["info"]["description"]),
        element("p", "For programs: ", element("a", "openapi.json", href="openapi.json"), "."),
    ]
    for call in CALLS:
        about = described["paths"][call.path][call.method.lower()]
        answers = [
            element("li", f"{status}: {each['description']}")
            for status, each in about["responses"].items()
        ]
        parts += [
            element("h2", element("code", f"{call.method} {call.path}")),
            element("p", about["description"]),
            element("pre", _example(call)),
            element("ul", *answers),
        ]
    parts.append(element("h1", "Fields"))
    for name, schema in described["components"]["schemas"].items():
        fields = msgspec.json.format(msgspec.json.encode(schema["properties"])).decode()
        parts += [
            element("h2", name, id=name),
            element("p", schema["description"]),
            element("pre", fields),
        ]
    return _PAGE + "\n".join(parts)


def _example(call: Call) -> str:
    """Return a call as a command of curl, and its answer."""
    command = f"$ curl http://127.0.0.1:7373{call.path}"
    command += f"?key={_KEY['example']}" if call.keyed else ""
    command += " -X DELETE" if call.method == "DELETE" else ""
    command += f" --json '{_encode(EXAMPLES[call.body])}'" if call.body else ""
    return f"{command}\n{_encode(EXAMPLES[call.answer])}" if call.answer in EXAMPLES else command


def _encode(example: msgspec.Struct) -> str:
    return msgspec.json.encode(example).decode()


async def _send_openapi(_: Request) -> HttpReply:
    return json_reply(openapi())


async def _send_page(_: Request) -> HttpReply:
    return HttpReply(page().encode(), headers={"Content-Type": "text/html; charset=utf-8"})


async def _send_no_icon(_: Request) -> HttpReply:
    return HttpReply(status=HTTPStatus.NO_CONTENT)


PAGES = (
    Call("GET", "/openapi.json", _send_openapi),
    Call("GET", "/docs", _send_page),
    Call("GET", "/favicon.ico", _send_no_icon),  # browsers request it by themselves
)
