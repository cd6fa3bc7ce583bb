"""Recipes as TOML files: read one that a user wrote, write one to start from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpdb.fingerprint.features import IdfTable
from fpdb.fingerprint.hashing import Secret, expecting, read_bounded
from fpdb.fingerprint.presets import preset
from fpdb.fingerprint.recipe import Recipe, table_of

_LARGEST_FILE = 1 << 20
_LARGEST_STOP_WORDS = 1 << 22
_OFF = "off"  # in place of a similarity, since TOML has no None
_MOST_DOTS = 4096  # the parser takes quadratic time for a key of many parts


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
        own = isinstance(value, Mapping) and isinstance(parts.get(name), Mapping)
        # Parameters of a hash belong to that hash; those of another one don't carry over.
        if own and not (name == "hash" and value.get("by", parts[name]["by"]) != parts[name]["by"]):
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
