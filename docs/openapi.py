"""Write openapi.json, the description of the server's calls, which it shows as a file.

It is made of the table of calls, their docstrings, and the types that check requests. The file is
checked in, so that the package has it; a test says when it has gone stale.
"""

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

import fpdb
from fpdb.integrations import server
from fpdb.integrations.server.application import Call
from fpdb.integrations.server.calls import CALLS
from fpdb.integrations.server.messages import (
    CheckAnswer,
    CheckBody,
    ProblemDetails,
    QueryAnswer,
    QueryBody,
    StoredDocument,
)

FILE = Path(server.__file__).with_name("openapi.json")
TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April."
KITES, BIRDS = "https://a.example/kites", "https://b.example/17"
NEAR = {"distance": 2, "similarity": 0.91}
EXAMPLES: dict[type[msgspec.Struct], dict[str, Any]] = {
    CheckBody: {"key": BIRDS, "text": TEXT, "meta": {"site": "b"}},
    CheckAnswer: {
        "key": BIRDS, "status": "duplicate", "duplicate_of": KITES, **NEAR
    },
    QueryBody: {"text": TEXT, "limit": 3},
    QueryAnswer: {"matches": [{"key": KITES, **NEAR, "meta": {"site": "a"}}]},
}  # fmt: skip
LINES = (
    " With the type application/x-ndjson, each line is such an object, and so is each line of the "
    "answer, in the same order while they come."
)
KEY = {
    "name": "key",
    "in": "query",
    "required": True,
    "schema": {"type": "string"},
    "description": "the key of the document",
    "example": "https://a.example/kites",
}


def description() -> bytes:
    """Return the description of all calls; the schemas are those that check requests."""
    _, schemas = msgspec.json.schema_components(
        (*EXAMPLES, StoredDocument, ProblemDetails), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = described_call(call)
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


def described_call(call: Call) -> dict[str, Any]:
    summary, _, text = (inspect.getdoc(call.reply) or "").partition("\n\n")
    good: dict[str, Any] = {"description": "It is done."}
    if call.answer:
        good = {"description": "The answer.", "content": content_of(call.answer, lines=call.body)}
    problem = {
        "description": "What is wrong, and mostly a hint; after 503, try again.",
        "content": content_of(ProblemDetails, "application/problem+json"),
    }
    described: dict[str, Any] = {
        "summary": summary.rstrip("."),
        "description": " ".join(text.split()) + (LINES if call.body else ""),
        "responses": {"200" if call.answer else "204": good, "default": problem},
    }
    if call.keyed:
        described["parameters"] = [KEY]
    if call.body:
        content = content_of(call.body, lines=call.body)
        described["requestBody"] = {"required": True, "content": content}
    if call.body is CheckBody:
        described["parameters"] = [KEY | {"required": False, "description": "the key of a page"}]
        content["text/html"] = {"schema": {}, "example": f"<p>{TEXT}</p>"}  # whatever bytes
    return described


def content_of(
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


if __name__ == "__main__":
    FILE.write_bytes(description())
