"""Cut a clean text into segments: words, characters, or Chinese words by jieba."""

import importlib.resources
import importlib.util
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from typing import Any, cast

from fpdb.errors import InputError

TaggedWord = tuple[str, str]
# A dictionary is loaded when there is a Han run to cut, not before.
Cut = Callable[[str], list[str]]
# A text of characters is its own sequence of segments.
Segments = Sequence[str] | Sequence[TaggedWord]

_WORD = re.compile(r"\w+")
# What is no part of a word in ASCII becomes a space: splitting there is faster than searching.
_ASCII_BREAKS = {code: " " for code in range(128) if not re.match(r"\w", chr(code))}
_HAN_RUN = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)")

# jieba builds a graph of all words in an unbroken run of Han, so that no more than this many
# characters go into one. No sentence is that long, and every cutter gets the same pieces.
_LONGEST_RUN = 1 << 14
_RUN_PIECE = re.compile(f"(?:[^\n]{{0,{_LONGEST_RUN}}}+\n)+|[^\n]{{1,{_LONGEST_RUN}}}")

# jieba's search for unknown words takes quadratic time in an unbroken run of Han, so that it gets
# no more than this many characters at once. No sentence is that long.
_HMM_PIECE = re.compile("(?:[^\n]{0,1000}+\n)+|[^\n]{1,1000}")


_LONGEST_TAGGED = 5_000
# For a Han character that jieba's model of tags doesn't know, it tries all pairs of tags.
_MOST_UNKNOWN = 100


def whitespace(text: str) -> list[str]:
    """Split at white space."""
    return text.split()


def words(text: str) -> list[str]:
    """Take the runs of letters, digits and underscores of any script."""
    return text.translate(_ASCII_BREAKS).split() if text.isascii() else _WORD.findall(text)


def characters(text: str) -> str:
    """Take each character."""
    return text


def chinese_words(text: str) -> list[str]:
    """Cut Han runs with jieba's dictionary alone (HMM off), the rest into words."""
    return _mixed(text, _dictionary_cut)


def chinese_words_hmm(text: str) -> list[str]:
    """Cut Han runs with jieba's dictionary and its model of unknown words, the rest into words."""
    return _mixed(text, _hmm_cut)


def tagged_words(text: str) -> list[TaggedWord]:
    """Cut with jieba's part-of-speech tagger: nouns are tagged n, punctuation w."""
    if len(text) > _LONGEST_TAGGED:
        raise InputError(
            f"found {len(text):,} characters to tag, expected at most {_LONGEST_TAGGED:,}",
            hint="tagging is for titles and short texts; take a recipe without tags",
        )
    tagger, known = _tagger()
    unknown = sum(character not in known for run in _HAN_RUN.findall(text) for character in run)
    if unknown > _MOST_UNKNOWN:
        raise InputError(
            f"found {unknown:,} rare characters to tag, expected at most {_MOST_UNKNOWN}",
            hint="tagging is for titles and short texts; take a recipe without tags",
        )
    return [(word, _tag(word, tag)) for word, tag in tagger(text)]


def _mixed(text: str, cut: Callable[[], Cut]) -> list[str]:
    pieces = [text] if text.isascii() else _HAN_RUN.split(text)
    if len(pieces) == 1:
        return words(text)
    # One call for all Han runs: the line feed keeps them apart, and none of them holds one.
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


def _count_mixed(text: str, cut: Callable[[], Cut]) -> Counter[str]:
    """Count the segments of `_mixed` without bringing them into their order."""
    pieces = [text] if text.isascii() else _HAN_RUN.split(text)
    if len(pieces) == 1:
        return Counter(words(text))
    counts = Counter(cut()("\n".join(pieces[1::2])))
    del counts["\n"]
    counts.update(_WORD.findall("\n".join(pieces[::2])))
    return counts


def _tag(word: str, tag: str) -> str:
    if tag.startswith("n"):
        return "n"
    return "w" if tag == "x" and not any(map(str.isalnum, word)) else tag


@cache
def _dictionary_cut() -> Cut:
    if importlib.util.find_spec("rjieba"):
        import rjieba

        return in_pieces(lambda text: rjieba.cut(text, hmm=False))
    return slow_dictionary_cut()


def slow_dictionary_cut() -> Cut:
    """Give the cut that jieba itself makes, which rjieba only makes faster."""
    tokenizer = jieba_tokenizer()
    return in_pieces(lambda text: cast("list[str]", tokenizer.lcut(text, HMM=False)))


def in_pieces(cut: Cut) -> Cut:
    """Cut runs that are too long piece by piece."""
    return lambda text: (
        cut(text)
        if len(text) <= _LONGEST_RUN
        else [word for piece in _RUN_PIECE.findall(text) for word in cut(piece)]
    )


@cache
def _hmm_cut() -> Cut:
    tokenizer = jieba_tokenizer()
    return lambda text: [
        word for piece in _HMM_PIECE.findall(text) for word in tokenizer.lcut(piece, HMM=True)
    ]


@cache
def _tagger() -> tuple[Callable[[str], Iterable[TaggedWord]], Container[str]]:
    """Load the tagger, and the characters that its model knows."""
    tokenizer = jieba_tokenizer()
    with warnings.catch_warnings(action="ignore"):
        import jieba.posseg
    return jieba.posseg.POSTokenizer(tokenizer).cut, jieba.posseg.char_state_tab_P


@cache
def jieba_tokenizer() -> Any:
    """Load jieba's own dictionary into a tokenizer that nobody else can change."""
    with warnings.catch_warnings(action="ignore"):  # jieba imports the deprecated pkg_resources
        import jieba
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    # jieba would keep its dictionary in a shared temporary directory, as marshalled data that
    # anybody could have put there. Reading the dictionary itself takes about half a second.
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


def jieba_idf() -> dict[str, float]:
    """Read the inverse document frequencies that come with jieba."""
    table = importlib.resources.files("jieba").joinpath("analyse/idf.txt")
    rows = (line.split(" ") for line in table.read_text("utf-8").splitlines())
    return {word: float(value) for word, value in rows}


CUTS: dict[str, Callable[[str], Segments]] = {
    "whitespace": whitespace,
    "words": words,
    "characters": characters,
    "jieba": chinese_words,
    "jieba-hmm": chinese_words_hmm,
    "jieba-tags": tagged_words,
}
COUNTS: dict[str, Callable[[str], Counter[str]]] = {
    "jieba": lambda text: _count_mixed(text, _dictionary_cut),
    "jieba-hmm": lambda text: _count_mixed(text, _hmm_cut),
}
TAGGED = frozenset({"jieba-tags"})
# How much more than other text Chinese characters cost, where they go through jieba itself.
HAN_COSTS = {"jieba": 2, "jieba-hmm": 8}


def count_han(text: str) -> int:
    """Count the characters that a dictionary cuts."""
    return sum(map(len, _HAN_RUN.findall(text)))
