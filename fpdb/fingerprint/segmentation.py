"""The first stages of a recipe: clean a text, and cut it into segments.

Each step and each cut is a name and a function. Steps take linear time for any input. A kernel
cleans character by character, by tables, so it takes only steps that do so too, and leaves out
texts with a character whose neighbours matter: the definitions do those.
"""

import importlib.util
import re
import unicodedata
import warnings
from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.errors import InputError, MissingExtraError
from fpdb.fingerprint.sketches import is_sign, shingle_strings

TaggedWord = tuple[str, str]
# A text of characters is its own sequence of segments.
Segments = Sequence[str] | Sequence[TaggedWord]
Step = Callable[[str], str]
_Words = Callable[[str], list[str]]

# Only characters that NFKC can change are normalised, with an ASCII character before them, which a
# mark may join.
_STABLE = re.compile("[\x00-\x7f\u3400-\u4dbf\u4e00-\u9fff]*")
_UNSTABLE = re.compile("[\x00-\x7f]?[^\x00-\x7f\u3400-\u4dbf\u4e00-\u9fff]+")
# Invisible characters: soft hyphen, zero-width and bidirectional controls, byte order mark.
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+")
# Normalising a run of marks takes quadratic time; 30 is the limit of Unicode's stream-safe form.
_MARKS_KEPT = 30

_TAG_TOKEN = re.compile(
    r"<!--|-->|<(?P<raw>script|style)\b[^<>]*>|</(?P<end>script|style)\b[^<>]*>|<[/!?a-z][^<>]*>",
    re.IGNORECASE,
)
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{8,}|x[0-9a-f]{7,});?", re.IGNORECASE)
_SPECIAL = re.compile(r"&(?:nbsp|amp|lt|gt|quot|apos);|[\s&<>]")
_WORD = re.compile(r"\w+")
_NO_WORD = re.compile(r"[\W_]+")
_OUTER_UNDERSCORES = re.compile(r"(?<!\w)_+|(?<!_)_++(?!\w)")
_LINE_END = re.compile(r"[-\u00ad\u2010][ \t]*+\r?\n[ \t]*+")
# A line that begins with # is a comment, but not in C, where these words may follow.
_HEADER = re.compile(
    r"""(?: \s*+ (?: //[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?
        | \#(?!(?:define|elif|else|endif|error|if|ifdef|ifndef|include|line|pragma|undef)\b)[^\n]*+
    ))++""",
    re.VERBOSE,
)
# Marks that select how an emoji or a Han character is drawn.
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Marks above and below letters of Latin, Greek, Cyrillic, Hebrew and Arabic, and the Arabic sign
# that stretches a word. Marks of other scripts are vowels, or make other letters.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]+"
)
_ACCENTED = range(0x80, 0x2000)
# OpenCC takes no surrogates; it leaves the last of these characters, which is none, as it is.
_NOT_FOR_OPENCC = re.compile("[\ud800-\udfff\uffff]")

_KEYWORDS = (
    "and as assert auto await bool boolean break byte case catch char class const continue def "
    "default del delete do double elif else enum except extends final finally float fn for func "
    "function global if impl implements import in int interface is lambda let long loop match mut "
    "new not null operator or package pass private protected public raise range return short "
    "signed sizeof static string struct super switch template this throw throws try type typedef "
    "typename union unsigned using var virtual void volatile while with yield"
)
_FOLDED = {"string": "s", "number": "0", "name": "n"}


def is_stable(text: str) -> bool:
    """Return whether a text has only characters that NFKC leaves as they are."""
    return text.isascii() or _STABLE.fullmatch(text) is not None


def normalise_unicode(text: str) -> str:
    """Apply NFKC and case folding, and drop invisible characters."""
    if is_stable(text):
        return text.casefold()
    return _UNSTABLE.sub(_normalise_run, text).casefold()


def _normalise_run(run: re.Match[str]) -> str:
    visible = _INVISIBLE.sub("", run[0])
    if len(visible) > _MARKS_KEPT:
        visible = _mark_bomb().sub(r"\1", visible)
    return unicodedata.normalize("NFKC", visible)


@cache
def _mark_bomb() -> re.Pattern[str]:
    """Return a pattern of more combining marks in a row than are kept."""
    marks = "".join(filter(_is_mark, map(chr, range(0x300, 0x1F000))))
    return re.compile(f"([{marks}]{{{_MARKS_KEPT}}})[{marks}]+")


def _is_mark(character: str) -> bool:
    """Return whether a character combines; a few do so only once they are decomposed."""
    return all(map(unicodedata.combining, unicodedata.normalize("NFKD", character)))


def strip_tags(text: str) -> str:
    """Drop tags, comments, scripts and styles, and resolve character references."""
    import html  # few recipes need it

    pieces: list[str] = []
    position = 0
    inside = ""  # the end of the skipped part: "-->", or the name of a raw element
    for token in _TAG_TOKEN.finditer(text):
        mark = token.group()
        if inside:
            if mark == inside or (token["end"] or "").lower() == inside:
                inside, position = "", token.end()
            continue
        if mark == "-->":
            continue
        pieces.append(text[position : token.start()])
        position = token.end()
        inside = "-->" if mark == "<!--" else (token["raw"] or "").lower()
    if not inside:
        pieces.append(text[position:])
    return html.unescape(_HUGE_REFERENCE.sub("\ufffd", " ".join(pieces)))


def remove_special(text: str) -> str:
    """Drop white space, the characters that HTML escapes, and leftover references."""
    return _SPECIAL.sub("", text)


def keep_word_characters(text: str) -> str:
    """Drop everything but letters, digits and underscores."""
    return "".join(_WORD.findall(text))


def keep_letters(text: str) -> str:
    """Drop everything but letters, digits, and the marks above, below and beside them."""
    return _NO_WORD.sub(_marks, text)


def _marks(run: re.Match[str]) -> str:
    if run[0].isascii():
        return ""
    plain = _SELECTORS.sub("", run[0])
    return "".join(
        character for character in plain if unicodedata.category(character).startswith("M")
    )


def join_hyphenated(text: str) -> str:
    """Join words that are divided by a hyphen at the end of a line, but before a capital letter."""

    def join(hyphen: re.Match[str]) -> str:
        before, after = (
            text[hyphen.start() - 1 : hyphen.start()],
            text[hyphen.end() : hyphen.end() + 1],
        )
        return "" if before.isalpha() and after.isalpha() and not after.isupper() else hyphen[0]

    return _LINE_END.sub(join, text)


def strip_underscores(text: str) -> str:
    """Replace underscores beside words by spaces, as in _emphasis_, but not those inside words."""
    return _OUTER_UNDERSCORES.sub(" ", text)


def drop_header(text: str) -> str:
    """Drop the comments with which a program begins: mostly a licence."""
    header = _HEADER.match(text)
    return text[header.end() :] if header else text


def fold_code(text: str) -> str:
    """Return the tokens of a program, one space between them, without comments.

    Every name but a keyword becomes n, every number 0, every string s.
    """
    return " ".join(
        _FOLDED.get(token.lastgroup or "", token[0])
        for token in _code_token().finditer(text)
        if token.lastgroup != "comment"
    )


@cache
def _code_token() -> re.Pattern[str]:
    # A comment's beginning in one language is code in another: C's preprocessor and Python's floor
    # division are dropped with the rest of their line. Python's documentation counts as a comment.
    return re.compile(
        rf"""
        (?P<comment> (?: // | \#)[^\n]* | /\*(?:[^*]|\*(?!/))*+(?:\*/)?
            | \"{{3}}(?:[^"]|"(?!""))*+(?:\"{{3}})? | '{{3}}(?:[^']|'(?!''))*+(?:'{{3}})? )
        | (?P<string> "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? )
        | (?P<number> \d[\w.]* )
        | (?:{"|".join(_KEYWORDS.split())})\b
        | (?P<name> \w+ )
        | [-+*/%&|^<>=!]= | && | \|\| | \+\+ | -- | -> | << | >> | :: | [^\s\w]
        """,
        re.VERBOSE | re.DOTALL,
    )


def drop_marks(text: str) -> str:
    """Drop accents, the vowel signs of Hebrew and Arabic, and the marks above and below an alif."""
    return text if text.isascii() else text.translate(_unaccented())


@cache
def _unaccented() -> dict[int, str]:
    """Return the rest of each character that has such a mark, or is one."""
    unaccented = {}
    for code in _ACCENTED:
        apart = unicodedata.normalize("NFD", chr(code))
        left = _ACCENTS.sub("", apart)
        if left != apart:
            unaccented[code] = unicodedata.normalize("NFC", left)
    return unaccented


def simplify_chinese(text: str) -> str:
    """Replace traditional characters by simplified ones, by OpenCC's dictionary."""
    convert = _opencc()
    if text.isascii():
        return text
    try:
        return convert(text)
    except UnicodeEncodeError:
        originals = iter(_NOT_FOR_OPENCC.findall(text))
        converted = convert(_NOT_FOR_OPENCC.sub("\uffff", text))
        return re.sub("\uffff", lambda _: next(originals), converted)


@cache
def _opencc() -> Step:
    """Load OpenCC's converter, which threads may share."""
    package = importlib.util.find_spec("opencc")
    # Of a bare name, OpenCC would read the file that anybody could have put in the working
    # directory. Other packages that are imported by this name don't have the file.
    config = Path((package and package.origin) or "/").parent / "clib/share/opencc/t2s.json"
    if not config.is_file():
        raise MissingExtraError(
            "the step t2s needs the package OpenCC, which isn't installed",
            hint="pip install 'fpdb-store[chinese]'",
        )
    import opencc

    converter: Step = opencc.OpenCC(str(config)).convert
    return converter


STEPS: dict[str, Step] = {
    "unicode": normalise_unicode,
    "lower": str.lower,
    "tags": strip_tags,
    "special": remove_special,
    "code": fold_code,
    "t2s": simplify_chinese,
    "word-characters": keep_word_characters,
    "letters": keep_letters,
    "marks": drop_marks,
    "hyphens": join_hyphenated,
    "underscores": strip_underscores,
    "header": drop_header,
}
# Steps that drop the white space between words, which shingles need.
JOINING = frozenset({"letters", "special", "word-characters"})

# ASCII characters outside of words become spaces: splitting there is faster than searching.
_ASCII_BREAKS = {code: " " for code in range(128) if not re.match(r"\w", chr(code))}
_HAN_RUN = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)")

# jieba builds a graph of all words in a run of Han, so longer runs are cut in pieces.
_LONGEST_RUN = 1 << 14
_LONGEST_HMM_RUN = 1000  # the search for unknown words takes quadratic time
_LONGEST_TAGGED = 5_000
# For a Han character that isn't in jieba's model of tags, the tagger tries all pairs of tags.
_MOST_UNKNOWN = 100


def words(text: str) -> list[str]:
    """Return the runs of letters, digits and underscores of any script."""
    return text.translate(_ASCII_BREAKS).split() if text.isascii() else _WORD.findall(text)


def tagged_words(text: str) -> list[TaggedWord]:
    """Cut with jieba's part-of-speech tagger: nouns are tagged n, punctuation w."""
    tagger, known = _tagger()
    rare = sum(character not in known for run in _HAN_RUN.findall(text) for character in run)
    for count, what, most in (
        (len(text), "characters", _LONGEST_TAGGED),
        (rare, "rare characters", _MOST_UNKNOWN),
    ):
        if count > most:
            raise InputError(
                f"found {count:,} {what} to tag, expected at most {most:,}",
                hint="tagging is for titles and short texts; take a recipe without tags",
            )
    return [(word, _tag(word, tag)) for word, tag in tagger(text)]


def _mixed_words(cut: Callable[[], _Words], text: str) -> list[str]:
    """Cut Han runs with a cut that is loaded when it is first needed, the rest into words."""
    pieces = [text] if text.isascii() else _HAN_RUN.split(text)
    if len(pieces) == 1:
        return words(text)
    # One call for all Han runs, with line feeds between them.
    han = iter(cut()("\n".join(pieces[1::2])))
    segments: list[str] = []
    for other in pieces[::2]:
        if len(other) > 1 or other == "_" or other.isalnum():
            segments += _WORD.findall(other)
        for word in han:
            if word == "\n":
                break
            segments.append(word)
    return segments


def count_han(text: str) -> int:
    """Count the Han characters, which a dictionary cuts."""
    return sum(map(len, _HAN_RUN.findall(text)))


def _tag(word: str, tag: str) -> str:
    if tag.startswith("n"):
        return "n"
    return "w" if tag == "x" and not any(map(str.isalnum, word)) else tag


def _dictionary_cut() -> _Words:
    table = dictionary_table() if kernels.enabled else None
    return _jieba_cut(hmm=False) if table is None else partial(kernels.chinese.cut, table)


@cache
def dictionary_table() -> "array[int] | None":
    """Make the table of jieba's dictionary for the kernel, which cuts by it exactly as jieba.

    Return None if the dictionary isn't a file of the usual form. The table takes 9 MB, which
    processes share that are forked later.
    """
    package = importlib.util.find_spec("jieba")  # importing jieba takes longer than all else
    path = Path((package and package.origin) or "/").with_name("dict.txt")
    try:
        return kernels.chinese.make_table(path.read_bytes())
    except (OSError, ValueError):
        return None


@cache
def _jieba_cut(*, hmm: bool) -> _Words:
    """Return a cut of jieba's, which takes long runs of characters piece by piece."""
    tokenizer = jieba_tokenizer()
    longest = _LONGEST_HMM_RUN if hmm else _LONGEST_RUN
    piece = re.compile(f"(?:[^\n]{{0,{longest}}}+\n)+|[^\n]{{1,{longest}}}")

    def cut(text: str) -> list[str]:
        parts = [text] if len(text) <= longest else piece.findall(text)
        return [word for part in parts for word in tokenizer.lcut(part, HMM=hmm)]

    return cut


@cache
def _tagger() -> tuple[Callable[[str], Iterable[TaggedWord]], Container[str]]:
    """Load the tagger, and the characters in its model."""
    tokenizer = jieba_tokenizer()
    with warnings.catch_warnings(action="ignore"):
        import jieba.posseg
    return jieba.posseg.POSTokenizer(tokenizer).cut, jieba.posseg.char_state_tab_P


@cache
def jieba_tokenizer() -> Any:
    """Load jieba's own dictionary into a tokenizer that isn't shared with other users of jieba."""
    with warnings.catch_warnings(action="ignore"):  # jieba imports the deprecated pkg_resources
        import jieba
    jieba.setLogLevel("WARNING")
    tokenizer = jieba.Tokenizer()
    # jieba would read a cache of its dictionary that anybody could have put in a shared directory.
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


def refuse(text: str) -> Segments:
    """Raise InputError, as there is no cut where fingerprints come from another program."""
    raise InputError(
        f"found the text {text[:20]!r}, expected a fingerprint: without a recipe, a text has none",
        hint="query by fingerprints; if a recipe of fpdb made the stored ones, load them into "
        "a database that is created with it",
    )


CUTS: dict[str, Callable[[str], Segments]] = {
    "whitespace": str.split,
    "words": words,
    "characters": str,
    "jieba": partial(_mixed_words, _dictionary_cut),
    "jieba-hmm": partial(_mixed_words, partial(_jieba_cut, hmm=True)),
    "jieba-tags": tagged_words,
    "shingles": shingle_strings,
    "none": refuse,
}
# How much more than other characters Han costs, where it goes through jieba.
HAN_COSTS = {"jieba": 2, "jieba-hmm": 8}

# The steps that the kernels have as well.
_KIND_SHIFT = 21
_LETTER, _SIGN = 1 << _KIND_SHIFT, 2 << _KIND_SHIFT
_SEVERAL, _HARD = 1 << 23, 1 << 24
_TABLE = 256
# Each of these steps treats characters one by one, except characters that `_combines` finds.
_BY_CHARACTER = frozenset({"letters", "marks", "unicode", "word-characters"})
# Scripts with characters that combine with the one before, though they aren't marks.
_LONE_MARKS = range(0xFE00, 0xFE10)  # marks that combine with nothing, which follow many emoji
_COMBINING = (range(0x1160, 0x1200), range(0xD7B0, 0xD800), range(0x10000, 0x1F000))


class Cleaning:
    """Steps of cleaning, divided into those for Python and those, after them, for a kernel."""

    def __init__(self, steps: Sequence[str], most: int, *, cut: str = "shingles") -> None:
        first = len(steps)
        while first and steps[first - 1] in _BY_CHARACTER:
            first -= 1
        self.steps, self.before = list(steps), list(steps[:first])
        self._after, self._cut, self._most = tuple(steps[first:]), cut, most

    @property
    def characters(self) -> "kernels.text.CharacterTable":
        """The result of the steps for the kernel, for each character."""
        return character_table(self._after, self._cut)

    def __call__(self, texts: list[str]) -> list[str] | None:
        """Do the steps for Python; return nothing if a text grows too long for the kernels."""
        cleaned = texts
        for step in self.before:
            cleaned = list(map(STEPS[step], cleaned))
        if self.before and max(map(len, cleaned), default=0) > self._most:
            return None
        return cleaned


@cache
def character_table(steps: tuple[str, ...], cut: str) -> "kernels.text.CharacterTable":
    """Return the table of each character after these steps, filled when it is used."""
    return kernels.text.CharacterTable(lambda number: _entries(steps, cut, number))


def _entries(steps: Sequence[str], cut: str, number: int) -> NDArray[np.uint32]:
    """Return the entries of 256 characters, and after them those that are several characters."""
    characters = list(map(chr, range(number * _TABLE, (number + 1) * _TABLE)))
    entries: list[int] = []
    several: list[int] = []
    whole = "".join(characters)
    unchanged = is_stable(whole) and clean(whole, steps) == whole
    for character in characters:
        if not unchanged and _is_hard(character, steps):
            entries.append(_HARD)
            continue
        cleaned = character if unchanged else clean(character, steps)
        codes = [ord(letter) | KINDS[cut](letter) for letter in cleaned]
        if len(codes) == 1:
            entries += codes
        else:
            entries.append(_SEVERAL + _TABLE + len(several))
            several += [len(codes), *codes]
    return np.array(entries + several, np.uint32)


def clean(text: str, steps: Sequence[str]) -> str:
    """Return a text after some steps."""
    for step in steps:
        text = STEPS[step](text)
    return text


def _is_hard(character: str, steps: Sequence[str]) -> bool:
    """Return whether the cleaning of a character depends on others beside it."""
    if "unicode" not in steps:
        return False
    before = clean(character, steps[: steps.index("unicode")])
    return any(map(_combines, unicodedata.normalize("NFKC", before)))


def _combines(character: str) -> bool:
    """Return whether a character may combine with the one before; some that don't count too."""
    code = ord(character)
    if code in _LONE_MARKS:
        return False
    return unicodedata.category(character).startswith("M") or any(
        code in codes for codes in _COMBINING
    )


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


# Whether a character belongs to a word, or is a sign, for each cut that a kernel has.
KINDS: dict[str, Callable[[str], int]] = {
    "shingles": lambda character: (
        _is_letter(character) and (_SIGN if is_sign(character) else _LETTER)
    ),
    "characters": lambda _: 0,
    "whitespace": lambda character: 0 if character.isspace() else _LETTER,
    "words": lambda character: _is_letter(character) and _LETTER,
    "jieba": lambda character: _SIGN if count_han(character) else _is_letter(character) and _LETTER,
}
