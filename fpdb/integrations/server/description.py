"""The description of the API: OpenAPI at `/openapi.json`, and the same as a page at `/docs`."""

import json
from functools import cache
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import fpdb
from fpdb.integrations.server.messages import (
    CheckAnswer,
    CheckBody,
    ProblemDetails,
    QueryAnswer,
    QueryBody,
    StoredDocument,
)

_TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April."
_DOCUMENT = {"key": "https://a.example/kites", "text": _TEXT, "meta": {"site": "a"}}
_CHECKED = {
    "key": "https://b.example/17",
    "status": "duplicate",
    "duplicate_of": "https://a.example/kites",
    "distance": 2,
    "similarity": 0.91,
}
_FOUND = {
    "matches": [
        {"key": "https://a.example/kites", "distance": 2, "similarity": 0.91, "meta": {"site": "a"}}
    ]
}
_STORED = {
    "key": "https://a.example/kites",
    "id": 0,
    "fingerprint": "3e09ab9b67922bd5",
    "short": False,
    "added": 1795405722,
    "characters": 78,
    "meta": {"site": "a"},
}
_PROBLEM = {
    "title": "Unprocessable Entity",
    "status": 422,
    "detail": "found 0 of text, html and fingerprint, expected one of them",
    "hint": "a text is what the recipe is made for",
}
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
_LINES = (
    "With the type application/x-ndjson, each line is such an object, and so is each line of the "
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


def _schema(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(kind: type[msgspec.Struct], example: object) -> dict[str, Any]:
    return {"application/json": {"schema": _schema(kind), "example": example}}


def _with_lines(kind: type[msgspec.Struct], example: object) -> dict[str, Any]:
    lines = {"schema": {"type": "string"}, "example": f"{json.dumps(example)}\n"}
    return _content(kind, example) | {"application/x-ndjson": lines}


def _call(
    summary: str, what: str, answer: dict[int, dict[str, Any]], *problems: int, **more: Any
) -> dict[str, Any]:
    """Return the description of a call; all may be refused by a token, or by a limit."""
    refused = {
        str(status): {
            "description": _PROBLEMS[status],
            "content": {
                "application/problem+json": {
                    "schema": _schema(ProblemDetails),
                    "example": _PROBLEM,
                }
            },
        }
        for status in sorted({401, 403, 503, *problems})
    }
    answers = {str(status): described for status, described in answer.items()}
    return {"summary": summary, "description": what, **more, "responses": answers | refused}


def _good(what: str, content: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {200: {"description": what, "content": content}}


def _plain(kind: str, schema: str) -> dict[str, Any]:
    return {kind: {"schema": {"type": schema}}}


@cache
def openapi() -> dict[str, Any]:
    """Return the description of all calls; the schemas are those that check requests."""
    kinds = (CheckBody, CheckAnswer, QueryBody, QueryAnswer, StoredDocument, ProblemDetails)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    bodies = (400, 409, 413, 422, 501)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fpdb",
            "version": fpdb.__version__,
            "description": "Finds near-duplicate documents. What is answered is stored for good.",
        },
        "paths": {
            "/v1/check": {
                "post": _call(
                    "Look for a document, and store it",
                    "Stores the document unless it resembles a stored one; both are one "
                    f"transaction. {_LINES}",
                    _good("What became of it.", _with_lines(CheckAnswer, _CHECKED)),
                    *bodies,
                    requestBody={"required": True, "content": _with_lines(CheckBody, _DOCUMENT)},
                )
            },
            "/v1/query": {
                "post": _call(
                    "Find near documents",
                    f"Finds the stored documents near a text, a page or a fingerprint. {_LINES}",
                    _good("The nearest documents.", _with_lines(QueryAnswer, _FOUND)),
                    *bodies,
                    requestBody={
                        "required": True,
                        "content": _with_lines(QueryBody, {"text": _TEXT, "limit": 3}),
                    },
                )
            },
            "/v1/documents": {
                "get": _call(
                    "Get a document",
                    "Returns what is stored of a document; its text isn't.",
                    _good("The document.", _content(StoredDocument, _STORED)),
                    404,
                    422,
                    parameters=[_KEY],
                ),
                "delete": _call(
                    "Delete a document",
                    "Deletes a document for good.",
                    {204: {"description": "It is deleted."}},
                    404,
                    422,
                    parameters=[_KEY],
                ),
            },
            "/v1/stats": {
                "get": _call(
                    "Get statistics",
                    "Returns the size and the settings of the database, as `fpdb stats --json`.",
                    _good("The statistics.", _plain("application/json", "object")),
                )
            },
            "/healthz": {
                "get": _call(
                    "Check the server",
                    "Returns whether the database can be read; it needs no token.",
                    _good("It can be read.", _plain("application/json", "object")),
                )
            },
            "/metrics": {
                "get": _call(
                    "Get metrics",
                    "Returns what Prometheus reads.",
                    _good("The metrics.", _plain("text/plain", "string")),
                )
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


@cache
def page() -> str:
    """Return the description as one HTML page, which needs no other file."""
    described = openapi()
    parts = [f"<h1>fpdb {fpdb.__version__}</h1><p>{escape(described['info']['description'])}"]
    parts.append("<p>For programs: <a href=openapi.json>openapi.json</a>.")
    for path, methods in described["paths"].items():
        for method, call in methods.items():
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2>")
            parts.append(f"<p>{escape(call['description'])}")
            parts.append(f"<pre>{escape(_example(method, path, call))}</pre><table>")
            for status, answer in call["responses"].items():
                parts.append(f"<tr><th>{status}<td>{escape(answer['description'])}")
            parts.append("</table>")
    parts.append("<h1>Fields</h1>")
    for name, schema in described["components"]["schemas"].items():
        parts.append(f"<h2 id={name}>{name}</h2><p>{escape(schema['description'])}<table>")
        for field, about in schema["properties"].items():
            needed = "required" if field in schema.get("required", ()) else ""
            parts.append(
                f"<tr><th>{field}<td>{escape(_kind(about))}<td>{needed}"
                f"<td>{escape(_description(about))}"
            )
        parts.append("</table>")
    return _PAGE + "\n".join(parts)


_PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>fpdb: the API</title>
<meta name=viewport content="width=device-width">
<style>
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
pre { background: #8882; overflow: auto; padding: .7rem }
th { text-align: left; vertical-align: top } td, th { padding: .1rem 1rem .1rem 0 }
:root { color-scheme: light dark }
</style>
"""


def _example(method: str, path: str, call: dict[str, Any]) -> str:
    """Return a call as a command of curl, and its answer."""
    query = f"?key={_KEY['example']}" if "parameters" in call else ""
    lines = [f"$ curl http://127.0.0.1:7373{path}{query}"]
    if method == "delete":
        lines[0] += " -X DELETE"
    if "requestBody" in call:
        body = call["requestBody"]["content"]["application/json"]["example"]
        lines[0] += f" --json '{json.dumps(body)}'"
    answer = call["responses"].get("200", {}).get("content", {}).get("application/json", {})
    if "example" in answer:
        lines.append(json.dumps(answer["example"]))
    return "\n".join(lines)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"] if each.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", "any"))


def _description(schema: dict[str, Any]) -> str:
    parts = [schema, *schema.get("anyOf", ())]
    return next((each["description"] for each in parts if "description" in each), "")


async def _send_openapi(_: Request) -> Response:
    return Response(msgspec.json.encode(openapi()), media_type="application/json")


async def _send_page(_: Request) -> Response:
    return HTMLResponse(page())


ROUTES = [Route("/openapi.json", _send_openapi), Route("/docs", _send_page)]
