"""The recipes that come with fpdb, and recipes as TOML files.

A preset never changes; a better one gets a new name.
"""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from fpdb.errors import RecipeError
from fpdb.fingerprint.features import Grams, IdfTable, Weights
from fpdb.fingerprint.hashing import Hash, Secret, expecting, read_bounded
from fpdb.fingerprint.recipe import Recipe, table_of

_LARGEST_FILE = 1 << 20
_LARGEST_STOP_WORDS = 1 << 22
_OFF = "off"  # in place of a similarity, since TOML has no None
_MOST_DOTS = 4096  # the parser takes quadratic time for a key of many parts

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

_DESCRIBED: dict[Recipe, str] = {
    _WEB: "the default: shingles, as in sketches, weighted by 1 + log of their count",
    _WEB.with_bits(128): "web with 128 bits",
    _WEB.replace(
        name="web-zh", clean=("unicode", "t2s")
    ): "web for Chinese in traditional and in simplified characters: needs the extra chinese",
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
    _of_bits(
        "tagged-title",
        clean=("lower", "tags", "special"),
        segment="jieba-tags",
        grams=_EVERY_TEXT,
        weights=Weights(cap=6, tags=(("w", 0.0),)),
        hash=Hash(by="multiply-xor", pad=3, utf16=True),
        tie=1,
        k=5,
    ): "titles: words by part of speech, no punctuation, a word counts up to six times",
}

# Of fingerprints that another program made: texts are refused. It isn't among the presets, which
# make fingerprints.
_NONE = _of_bits("none", 64, (), "none")
_WITHOUT_TEXTS = {bare.name: bare for bare in (_NONE, _NONE.with_bits(32), _NONE.with_bits(128))}

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


def read_recipe(path: str | Path) -> Recipe:
    """Build the recipe that a TOML file describes.

    `base = "web"` starts from a preset. Paths in the file (`grams.stop_words`, `weights.idf`
    and `hash.secret_file`) are relative to it. The name is the file's unless it has another.

    Raises:
        RecipeError: The file doesn't describe a recipe.
        InputError: A file can't be read.
    """
    import tomllib  # only recipes of one's own need it

    path = Path(path)
    hint = "fpdb recipes web prints a recipe to start from"
    with expecting(f"the recipe {path} can't be read", hint):
        content = read_bounded(path, _LARGEST_FILE)[0].decode("utf-8")
        if (dots := content.count(".")) > _MOST_DOTS:
            raise ValueError(f"it has {dots:,} dots, expected at most {_MOST_DOTS:,}")
        plain = tomllib.loads(content)
    base = plain.pop("base", None)
    parts: dict[str, Any] = {"name": path.stem.lower()}
    if base is not None:
        parts = preset(base).to_dict() | parts
    for name, value in plain.items():
        nested = isinstance(value, Mapping) and isinstance(parts.get(name), Mapping)
        # Parameters of a hash belong to that hash; those of another one don't carry over.
        if nested and not (
            name == "hash" and value.get("by", parts[name]["by"]) != parts[name]["by"]
        ):
            value = {**parts[name], **value}  # noqa: PLW2901
        parts[name] = value
    if parts.get("similarity") == _OFF:
        parts["similarity"] = None
    secret = _resolve_files(parts, path.parent)
    return Recipe.from_dict(parts, secret=secret)


def _resolve_files(parts: dict[str, Any], folder: Path) -> Secret | None:
    """Replace the names of files by their contents."""
    grams, weights, hash_parts = (table_of(parts, name) for name in ("grams", "weights", "hash"))
    stop_words = grams.get("stop_words")
    if isinstance(stop_words, str):
        hint = "name a UTF-8 file with a word on each line, or give a list of words"
        with expecting("the stop words can't be read", hint):
            content, _ = read_bounded(folder / stop_words, _LARGEST_STOP_WORDS)
            grams["stop_words"] = content.decode("utf-8").split()
    idf = weights.get("idf")
    if isinstance(idf, str) and idf != "jieba":
        table = IdfTable.from_file(folder / idf)
        weights["idf"] = {"values": table.values, "missing": table.missing}
    secret = None
    if (secret_file := hash_parts.pop("secret_file", None)) is not None:
        secret = Secret.from_file(folder / str(secret_file))
        hash_parts["secret"] = secret.id
    parts |= {"grams": grams, "weights": weights, "hash": hash_parts}
    return secret


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML; in place of an idf table and a secret are file names to fill in."""
    plain = recipe.to_dict()
    notes = []
    if isinstance(plain["weights"]["idf"], Mapping):
        notes.append(f"# weights.idf: name the file of the table with the id {recipe.idf_id}")
        plain["weights"]["idf"] = "?"
    if secret := plain["hash"].pop("secret", None):
        notes.append(f"# hash.secret_file: name the file of the secret with the id {secret}")
        plain["hash"]["secret_file"] = "?"  # noqa: S105
    tables = {name: value for name, value in plain.items() if isinstance(value, Mapping)}
    lines = [f"# id {recipe.id}", *notes]
    lines += [f"{name} = {_value(value)}" for name, value in plain.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_value(item)}" for key, item in table.items() if item is not None]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    value = _OFF if value is None else value
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # JSON writes a character beyond U+FFFF as two escapes, and DEL raw: TOML allows neither.
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain)
