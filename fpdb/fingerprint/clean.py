"""Clean a text before it is cut: each step is a name and a function that is linear on any input."""

import html
import re
import unicodedata
from collections.abc import Callable
from functools import cache

# Unified ideographs never change under NFKC, so only what stands between them is normalised.
# An ASCII character before such a run goes with it: a combining mark may join it.
_STABLE = re.compile("[\x00-\x7f\u3400-\u4dbf\u4e00-\u9fff]*")
_UNSTABLE = re.compile("([\x00-\x7f]?[^\x00-\x7f\u3400-\u4dbf\u4e00-\u9fff]+)")
# What no reader sees: soft hyphen, zero-width and bidirectional controls, byte order mark.
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+")
# Longer runs of combining marks carry no meaning, and normalising them takes quadratic time
# (30 is the limit of the Unicode stream-safe text format).
_MARKS_KEPT = 30
_RUNS_REMEMBERED = 1 << 15
_RUN_WORTH_REMEMBERING = 16

_TAG_TOKEN = re.compile(
    r"<!--|-->|<(?P<raw>script|style)\b[^<>]*>|</(?P<end>script|style)\b[^<>]*>|<[/!?a-z][^<>]*>",
    re.IGNORECASE,
)
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{8,}|x[0-9a-f]{7,});?", re.IGNORECASE)
_SPECIAL = re.compile(r"&(?:nbsp|amp|lt|gt|quot|apos);|[\s&<>]")
_WORD_CHARACTERS = re.compile(r"\w+")


class _NormalisedRuns(dict[str, str]):
    """Remembers short runs, which are mostly punctuation; holds a bounded number of them."""

    def __missing__(self, run: str) -> str:
        normal = _normalise_run(run)
        if len(run) <= _RUN_WORTH_REMEMBERING:
            if len(self) >= _RUNS_REMEMBERED:
                self.clear()
            self[run] = normal
        return normal


_runs = _NormalisedRuns()


def normalise_unicode(text: str) -> str:
    """Apply NFKC and case folding, and drop invisible characters."""
    if text.isascii() or _STABLE.fullmatch(text):
        return text.casefold()
    pieces = _UNSTABLE.split(text)
    pieces[1::2] = map(_runs.__getitem__, pieces[1::2])
    return "".join(pieces).casefold()


def _normalise_run(run: str) -> str:
    run = _INVISIBLE.sub("", run)
    if len(run) > _MARKS_KEPT:
        run = _mark_bomb().sub(r"\1", run)
    return unicodedata.normalize("NFKC", run)


@cache
def _mark_bomb() -> re.Pattern[str]:
    """Match more combining marks in a row than are kept."""
    ranges: list[list[int]] = []
    for code in filter(_is_mark, range(0x300, 0x1F000)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    marks = "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
    return re.compile(f"([{marks}]{{{_MARKS_KEPT}}})[{marks}]+")


def _is_mark(code: int) -> bool:
    """Tell whether a character combines; a few do so only once they are decomposed."""
    return all(map(unicodedata.combining, unicodedata.normalize("NFKD", chr(code))))


def strip_tags(text: str) -> str:
    """Drop tags, comments, scripts and styles, and resolve character references."""
    kept: list[str] = []
    position = 0
    inside = ""  # what must come before text counts again: "-->", or the name of a raw element
    for token in _TAG_TOKEN.finditer(text):
        mark = token.group()
        if inside:
            if mark == inside or (token["end"] or "").lower() == inside:
                inside, position = "", token.end()
            continue
        if mark == "-->":
            continue
        kept.append(text[position : token.start()])
        position = token.end()
        inside = "-->" if mark == "<!--" else (token["raw"] or "").lower()
    if not inside:
        kept.append(text[position:])
    return html.unescape(_HUGE_REFERENCE.sub("\ufffd", " ".join(kept)))


def remove_special(text: str) -> str:
    """Drop white space, the characters that HTML escapes, and references left in the text."""
    return _SPECIAL.sub("", text)


def keep_word_characters(text: str) -> str:
    """Join what is left when everything but letters, digits and underscores is dropped."""
    return "".join(_WORD_CHARACTERS.findall(text))


Step = Callable[[str], str]
STEPS: dict[str, Step] = {
    "unicode": normalise_unicode,
    "lower": str.lower,
    "tags": strip_tags,
    "special": remove_special,
    "word-characters": keep_word_characters,
}
# Steps that drop the white space between words. Shingles need it, and drop the rest themselves.
JOINING = frozenset({"special", "word-characters"})
