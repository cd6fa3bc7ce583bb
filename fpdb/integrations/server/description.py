"""The description of the API by OpenAPI: of the table of calls, their docstrings, and the types."""

import inspect
import json
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

import fpdb
from fpdb.integrations.server.application import Call, Request
from fpdb.integrations.server.calls import CALLS
from fpdb.integrations.server.messages import (
    EXAMPLES,
    JSON,
    HttpReply,
    ProblemDetails,
    StoredDocument,
)

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
def description() -> bytes:
    """Return the description of all calls; the schemas are those that check requests."""
    _, schemas = msgspec.json.schema_components(
        (*EXAMPLES, StoredDocument, ProblemDetails), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = _described(call)
    described = {
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
    return json.dumps(described, indent=2).encode() + b"\n"


def _described(call: Call) -> dict[str, Any]:
    summary, _, text = (inspect.getdoc(call.reply) or "").partition("\n\n")
    good: dict[str, Any] = {"description": "It is done."}
    if call.answer:
        good = {"description": "The answer.", "content": _content(call.answer, lines=call.body)}
    problem = {
        "description": "What is wrong, and mostly a hint; after 503, try again.",
        "content": _content(ProblemDetails, "application/problem+json"),
    }
    described: dict[str, Any] = {
        "summary": summary.rstrip("."),
        "description": " ".join(text.split()) + (_LINES if call.body else ""),
        "responses": {"200" if call.answer else "204": good, "default": problem},
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
    if kind is str:
        return {"text/plain": {"schema": {"type": "string"}}}
    schema: dict[str, Any] = {"type": "object"}
    if issubclass(kind, msgspec.Struct):
        schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    content: dict[str, dict[str, Any]] = {media: {"schema": schema}}
    if kind in EXAMPLES:
        content[media]["example"] = EXAMPLES[kind]
    if lines:
        line = f"{json.dumps(EXAMPLES[kind])}\n"
        content["application/x-ndjson"] = {"schema": {"type": "string"}, "example": line}
    return content


async def _openapi(_: Request) -> HttpReply:
    return HttpReply(description(), headers=JSON)


async def _favicon(_: Request) -> HttpReply:
    return HttpReply(status=HTTPStatus.NO_CONTENT)


PAGES = (
    Call("GET", "/openapi.json", _openapi),
    Call("GET", "/favicon.ico", _favicon),  # browsers request it by themselves
)
