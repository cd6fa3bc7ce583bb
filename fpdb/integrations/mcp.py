"""Serve a database to agents by the Model Context Protocol: JSON-RPC, a message on each line.

The protocol's own package would bring some twenty others with it, for four tools.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, NoReturn

import fpdb
from fpdb.integrations.batcher import again_if_moved

# The first is the answer to a client that speaks none of these.
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
INSTRUCTIONS = (
    "fpdb keeps which texts were stored before. It finds copies and lightly edited versions, which "
    "share most of their words in the same order. It doesn't find paraphrases or translations, and "
    "it doesn't keep the texts themselves: put what you need later into meta."
)
_NO_JSON, _NO_REQUEST, _NO_METHOD, _NO_PARAMETERS = -32700, -32600, -32601, -32602

Json = dict[str, Any]


class _RefusedError(Exception):
    """A message that has no result: a code of JSON-RPC, and the reason."""


class _Tool(NamedTuple):
    """A tool: what it is for, the schemas of its arguments, and how many of these it needs."""

    about: str
    run: Callable[..., Json]
    arguments: dict[str, Json]
    needed: int


def answers(database: fpdb.Database, lines: Iterable[bytes]) -> Iterator[Json]:
    """Yield the answer to each line that is a request; a notification gets none."""
    for line in filter(bytes.strip, lines):
        message, answer = None, {}
        try:
            message = _decoded(line)
            answer["result"] = _result(database, message)
        except _RefusedError as refused:
            answer["error"] = dict(zip(("code", "message"), refused.args, strict=True))
        if message is None or "id" in message:
            yield {"jsonrpc": "2.0", "id": message and message["id"], **answer}


def _decoded(line: bytes) -> Json:
    try:
        message = json.loads(line, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise _RefusedError(_NO_JSON, f"this isn't JSON: {error}") from None
    if not isinstance(message, dict):
        raise _RefusedError(_NO_REQUEST, "expected an object")
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}")


def _finite(digits: str) -> float:
    """Return a number that an answer can repeat as JSON."""
    return _refuse_constant(digits) if math.isinf(number := float(digits)) else number


def _result(database: fpdb.Database, message: Json) -> Json:
    method, parameters = message.get("method"), message.get("params") or {}
    if not isinstance(parameters, dict):
        raise _RefusedError(_NO_PARAMETERS, "expected parameters by their names")
    if method == "initialize":
        version = parameters.get("protocolVersion")
        return {
            "protocolVersion": version if version in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "fpdb", "version": fpdb.__version__},
            "instructions": INSTRUCTIONS,
        }
    if method == "tools/list":
        return {"tools": [_described(name, tool) for name, tool in TOOLS.items()]}
    if method == "tools/call":
        tool = TOOLS.get(str(parameters.get("name")))
        if not tool:
            raise _RefusedError(_NO_PARAMETERS, f"the tools are {', '.join(TOOLS)}")
        return _called(database, tool, parameters.get("arguments") or {})
    if method != "ping":
        raise _RefusedError(_NO_METHOD, f"there is no method {method!r:.80}")
    return {}


def _described(name: str, tool: _Tool) -> Json:
    required = list(tool.arguments)[: tool.needed]
    schema = {"type": "object", "properties": tool.arguments, "required": required}
    return {"name": name, "description": tool.about, "inputSchema": schema}


def _called(database: fpdb.Database, tool: _Tool, arguments: object) -> Json:
    """Return the result of a tool; what is wrong is told to the model, which may cure it."""
    try:
        run = partial(tool.run, database, **_checked(tool, arguments))
        result = again_if_moved(database, run)
    except fpdb.FpdbError as error:
        text = f"{error}\n{error.hint}".strip()
        return {"content": [{"type": "text", "text": text}], "isError": True}
    text = json.dumps(result, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": result}


def _checked(tool: _Tool, arguments: object) -> Json:
    names = list(tool.arguments)
    hint = f"the arguments are {', '.join(names) or 'none'}"
    if not isinstance(arguments, dict) or not arguments.keys() >= {*names[: tool.needed]}:
        raise fpdb.InputError(f"expected {' and '.join(names[: tool.needed])}", hint=hint)
    # Some programs send null for what they leave out.
    needed = names[: tool.needed]
    present = {
        name: value for name, value in arguments.items() if value is not None or name in needed
    }
    for name, value in present.items():
        kind = tool.arguments.get(name, {}).get("type")
        if name not in names or (kind and type(value) not in _TYPES[kind]):
            expected = f", expected {kind}" if kind else ""
            raise fpdb.InputError(f"found {name[:80]}: {value!r:.80}{expected}", hint=hint)
    return present


def _check(database: fpdb.Database, key: str, text: str, meta: object = None) -> Json:
    added = database.add(_key(database, key), text, meta, skip_duplicates=True)
    copy_of = _shown(added.matches)[:1] if added.status == "duplicate" else []
    return {"key": key, "status": added.status, "duplicate_of": copy_of}


def _query(
    database: fpdb.Database, text: str, similarity: float | None = None, limit: int = 10
) -> Json:
    matches = database.query(text, similarity=similarity, limit=limit)
    return {"matches": _shown(matches), "complete": matches.complete}


def _delete(database: fpdb.Database, key: str) -> Json:
    return {"deleted": database.delete(_key(database, key))}


def _stats(database: fpdb.Database) -> Json:
    stats = asdict(database.stats())
    return {name: stats[name] for name in ("documents", "short", "bytes", "similarity", "keys")}


def _shown(matches: fpdb.Matches) -> list[Json]:
    return [{name: getattr(match, name) for name in _MATCH} for match in matches]


def _key(database: fpdb.Database, key: str) -> str | int:
    number = database.key_type == "integer" and key.isdecimal() and len(key) <= 20
    return int(key) if number else key


_MATCH = ("key", "similarity", "meta")
_TYPES: dict[str, list[type]] = {"string": [str], "number": [int, float], "integer": [int]}
_KEY = {"type": "string", "description": "the name of the document, such as its URL"}
_TEXT = {"type": "string", "description": "the whole text, not a summary"}
_LEAST = {"type": "number", "description": "the least, up to 1"}
_META = {"description": "any JSON to keep with the document"}
_CHECKED = "Store a text under a key, unless it resembles a stored one: then return that."
_FOUND = "Find the stored documents that resemble a text, the nearest first; store nothing."
_LIMITED = {"type": "integer", "minimum": 1}
TOOLS = {
    "check": _Tool(_CHECKED, _check, {"key": _KEY, "text": _TEXT, "meta": _META}, 2),
    "query": _Tool(_FOUND, _query, {"text": _TEXT, "similarity": _LEAST, "limit": _LIMITED}, 1),
    "delete": _Tool("Delete a document.", _delete, {"key": _KEY}, 1),
    "stats": _Tool("Count what is stored.", _stats, {}, 0),
}
