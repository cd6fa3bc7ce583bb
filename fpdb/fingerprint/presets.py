"""The recipes that come with fpdb. A preset never changes; a better one gets a new name."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial

from fpdb.errors import RecipeError
from fpdb.fingerprint.features import Grams, Weights
from fpdb.fingerprint.hashing import Hash
from fpdb.fingerprint.recipe import Recipe

_WEB = Recipe(
    "web",
    64,
    ("unicode",),
    "shingles",
    Grams(minimum=6),
    Weights(by="log"),
    Hash(by="shingle"),
    k=7,
)
_EVERY_TEXT = Grams(minimum=0)
_of_bits = partial(Recipe, similarity=None)
_TAGGED_TITLE = _of_bits(
    "tagged-title",
    clean=("lower", "tags", "special"),
    segment="jieba-tags",
    grams=_EVERY_TEXT,
    weights=Weights(cap=6, tags=(("w", 0.0),)),
    hash=Hash(by="multiply-xor", pad=3, utf16=True),
    tie=1,
    k=5,
)

_DESCRIBED: dict[Recipe, str] = {
    _WEB: "the default: shingles, as in sketches, weighted by 1 + log of their count",
    _WEB.with_bits(128): "web with 128 bits",
    _of_bits(
        "words", grams=Grams(minimum=8), weights=Weights(by="log")
    ): "words, Chinese ones by jieba, weighted as in web: queries of bits by four probes",
    Recipe(
        "char-4", 64, ("word-characters", "unicode"), "characters", Grams(n=4, minimum=8)
    ): "windows of four letters or digits, counted: any language, no dictionary",
    Recipe(
        "noisy",
        64,
        ("unicode", "letters"),
        "characters",
        Grams(n=4, minimum=8),
        similarity=0.65,
        sketch="features",
    ): "scanned and noisy texts, in any script: similar by windows of four letters",
    Recipe(
        "title",
        64,
        ("unicode", "word-characters"),
        "characters",
        Grams(n=2),
        similarity=0.6,
        sketch="features",
    ): "titles and questions: pairs of letters or digits, and the similarity of these",
    _WEB.replace(
        name="code", clean=("header", "unicode"), similarity=0.65
    ): "source code, and its versions: web without the comments that a file begins with",
    Recipe(
        "submissions",
        64,
        ("code",),
        "whitespace",
        Grams(n=4, minimum=8),
        Weights(by="log"),
        k=7,
        similarity=0.7,
        sketch="features",
    ): "programs in disguise: windows of four tokens, without comments, all names alike",
    _of_bits(
        "simhash-py",
        clean=("lower", "word-characters"),
        segment="characters",
        grams=Grams(n=4, keep_empty=True),
        hash=Hash(by="md5"),
    ): "bit-equal to the PyPI package simhash",
    _of_bits(
        "charikar", 128, (), "whitespace", _EVERY_TEXT, hash=Hash(by="multiply-xor"), tie=1
    ): "words between white space, multiply-xor hash, 128 bits",
    _of_bits(
        "ascii-mt",
        32,
        (),
        "characters",
        _EVERY_TEXT,
        hash=Hash(by="mersenne", seed=19260817),
        tie=1,
        k=2,
    ): "ASCII characters, hashed by a Mersenne twister, 32 bits; for source code",
    _of_bits(
        "bigram-32", 32, (), "characters", Grams(n=2)
    ): "windows of two characters, counted, 32 bits",
    _of_bits(
        "news-md5", 64, (), "whitespace", _EVERY_TEXT, hash=Hash(by="md5", offset=32), tie=1, k=4
    ): "words between white space, counted; bits 32 to 95 of their md5",
    _TAGGED_TITLE: "titles: words by part of speech, no punctuation, a word counts up to six times",
    _TAGGED_TITLE.replace(
        name="title-terms", clean=(), segment="terms"
    ): "tagged-title for words that another program has cut: word/tag word/tag",
}

# Of fingerprints that another program made: texts are refused. It isn't among the presets, which
# make fingerprints.
_NONE = _of_bits("none", 64, (), "none")
_WITHOUT_TEXTS = {each.name: each for each in (_NONE, _NONE.with_bits(32), _NONE.with_bits(128))}

DESCRIPTIONS: Mapping[str, str] = {recipe.name: words for recipe, words in _DESCRIBED.items()}
PRESETS: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _DESCRIBED}


def preset(name: str) -> Recipe:
    """Return a recipe that comes with fpdb.

    Raises:
        RecipeError: None has this name; the hint names the nearest.
    """
    try:
        return _WITHOUT_TEXTS.get(name) or PRESETS[name]
    except (KeyError, TypeError):
        close = get_close_matches(str(name), PRESETS, 1)
        raise RecipeError(
            f"found no recipe {name!r}, expected one of {', '.join(PRESETS)}",
            hint=f"did you mean {close[0]}?" if close else "fpdb recipes describes them",
        ) from None


recipe = preset  # its name in fpdb
