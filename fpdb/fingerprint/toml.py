"""Recipes as TOML files: read one that a user wrote, write one to start from."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpdb.errors import InputError, RecipeError
from fpdb.fingerprint.hashing import Secret
from fpdb.fingerprint.presets import preset
from fpdb.fingerprint.recipe import Recipe
from fpdb.fingerprint.weights import IdfTable

_LARGEST_FILE = 1 << 24


def read_recipe(path: Path) -> Recipe:
    """Build the recipe that a TOML file describes.

    `base = "web"` starts from a preset. Paths in the file (`grams.stop_words`, `weights.idf`
    and `hash.secret_file`) are relative to it. The name is the file's unless it has another.
    """
    plain = _load(path)
    base = plain.pop("base", None)
    parts: dict[str, Any] = {"name": path.stem.lower()}
    if base is not None:
        parts = preset(base).to_dict() | parts
    for name, value in plain.items():
        own = isinstance(value, Mapping) and isinstance(parts.get(name), Mapping)
        parts[name] = (
            {**parts[name], **value} if own and _same_choice(parts[name], value) else value
        )
    secret = _resolve_files(parts, path.parent)
    return Recipe.from_dict(parts, secret=secret)


def _same_choice(base: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Tell whether parameters of the base still apply; those of another choice don't."""
    return "by" not in value or bool(value["by"] == base["by"])


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise RecipeError(f"{path} has more than {_LARGEST_FILE} bytes", hint="is it a recipe?")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RecipeError(
            f"the recipe can't be read: {error}",
            hint="fpdb recipes list names those that come with fpdb",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecipeError(
            f"{path} is no TOML: {error}",
            hint="fpdb recipes show web prints a recipe to start from",
        ) from None


def _resolve_files(parts: dict[str, Any], folder: Path) -> Secret | None:
    """Replace the names of files by what they hold."""
    grams, weights, hash_parts = (
        dict(parts.get(name) or {}) for name in ("grams", "weights", "hash")
    )
    stop_words = grams.get("stop_words")
    if isinstance(stop_words, str):
        try:
            grams["stop_words"] = (folder / stop_words).read_text("utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"the stop words can't be read: {error}") from None
    idf = weights.get("idf")
    if isinstance(idf, str) and idf != "jieba":
        try:
            table = IdfTable.from_file(folder / idf)
        except InputError as error:
            raise RecipeError(str(error), hint=error.hint) from None
        weights["idf"] = {"values": table.values, "missing": table.missing}
    secret = None
    secret_file = hash_parts.pop("secret_file", None)
    if secret_file is not None:
        secret = Secret.from_file(folder / str(secret_file))
        hash_parts["secret"] = secret.id
    parts |= {"grams": grams, "weights": weights, "hash": hash_parts}
    return secret


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML; an idf table of its own and a secret are named, not written out."""
    plain = recipe.to_dict()
    idf, secret = plain["weights"].pop("idf"), plain["hash"].pop("secret", None)
    notes = []
    if isinstance(idf, Mapping):
        notes.append(f"# weights.idf: a table of {len(idf['values'])} features, kept elsewhere")
    elif idf is not None:
        plain["weights"]["idf"] = idf
    if secret is not None:
        notes.append(f"# hash.secret_file: the secret with the id {secret}, kept elsewhere")
    tables = {name: value for name, value in plain.items() if isinstance(value, Mapping)}
    lines = [f"# id {recipe.id}", *notes]
    lines += [f"{name} = {_value(value)}" for name, value in plain.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return json.dumps(value)
