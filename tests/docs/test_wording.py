"""The pages, the help texts, the docstrings and the messages use ordinary words."""

import ast
import re
from pathlib import Path

import cli_reference
import pytest

from fpdb.cli.app import program

ROOT = Path(__file__).resolve().parents[2]

# Phrases of early drafts, and what to write.
PHRASES = {
    r"\b(is|are|be|been|being|was|were) told\b": "gets, returns, reports",
    r"\btells\b": "says, shows, distinguishes",
    r"\bstands? for\b": "means",
    r"\bstands? (in|on|at|beside|there)\b": "is, is stored",
    r"(?<!transactions) behind\b": "after, of",
    r"\bamid\b": "during, in the middle of",
    r"\bso many\b": "N, this number of",
    r"\bfelt\b": "noticed",
    r"\b(is|are|be|was|were) asked for\b": "requested, compared",
    r"\basks? for (bits|fingerprints|what|similar)": "query, compare",
    r"\bheed(s|ed)?\b": "checked, handled",
    r"\bin peace\b": "without an error",
    r"\bcan be had\b": "is possible, is available",
    r"\b(that|which) (is|are) no\b(?! longer| more)": "that isn't a",
    r"\bis no (JSON|ASCII|UTF-8)\b": "isn't JSON",
    r"\bgives? back\b": "returns",
    r"\bfor the (reading|writing) of\b": "to read",
    r"\bbeforehand known\b": "known",
    r"\bmakes? nothing of\b": "ignores",
}  # fmt: skip

# A page says in Markdown what it means; code is no prose.
CODE = re.compile(r"^[ ]*(`{3,}).*?^[ ]*\1\s*$|`[^`]*`", re.MULTILINE | re.DOTALL)


def prose_of_pages():
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for path in sorted(paths):
        if "_build" not in path.parts and path.name != "cli.md":
            yield str(path.relative_to(ROOT)), CODE.sub("", path.read_text(encoding="utf-8"))


def prose_of_help():
    for name, _, text in cli_reference.commands(program()):
        yield f"{name} --help", text


def prose_of_modules():
    """Yield all texts of each module, which are docstrings and messages, and its comments."""
    for path in sorted((ROOT / "fpdb").rglob("*.py")):
        name, source = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{name}:{node.lineno}", CODE.sub("", node.value)
        yield str(name), " ".join(re.findall(r"# (.*)", source))


def found_in(texts):
    return [
        f"{place}: {' '.join(match[0].split())!r}; write: {instead}"
        for place, text in texts
        for phrase, instead in PHRASES.items()
        for match in re.finditer(phrase.replace(" ", r"\s+"), text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("texts", [prose_of_pages, prose_of_help, prose_of_modules])
def test_no_phrase_of_early_drafts_is_left(texts):
    assert found_in(texts()) == []


def test_phrases_are_found_wherever_a_line_breaks():
    assert len(found_in([("here", "It is\n  told so\nmany times, amid all.")])) == 3
