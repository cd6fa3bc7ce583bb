"""The manifest of a directory of sorted columns: what they are, and how many there must be."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpdb.errors import InputError, RecipeMismatchError, TooNewError
from fpdb.fingerprint import Recipe
from fpdb.io.sorted_columns import names_in
from fpdb.tables import Index, Plan

FORMAT = 1
MANIFEST = "manifest.json"
DOCUMENTS = "documents"

_FIELDS: Mapping[str, tuple[type, ...]] = {
    "recipe": (dict,),
    "recipe_id": (str,),
    "plan": (dict,),
    "keys": (str,),
    "sketch": (str, type(None)),
    "capacity": (int,),
    "documents": (int,),
    "short": (int,),
}
_LARGEST = 1 << 26
_HINT = "the documentation of sorted columns says what it holds"


class SortedColumns:
    """A directory of sorted columns, with what its manifest says."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        manifest = _read(self.directory / MANIFEST)
        self.keys: str = manifest["keys"]
        self.sketch: str | None = manifest["sketch"]
        self.capacity: int = manifest["capacity"]
        self.documents: int = manifest["documents"]
        self.short: int = manifest["short"]
        self.plan = Plan.from_dict(manifest["plan"])
        self._recipe: Mapping[str, Any] = manifest["recipe"]
        self._recipe_id: str = manifest["recipe_id"]
        expected = {MANIFEST, DOCUMENTS, *Index(self.plan).names}
        if (found := names_in(self.directory)) != expected:
            raise InputError(
                f"{self.directory} holds {', '.join(sorted(found))}, "
                f"expected {', '.join(sorted(expected))}",
                hint="the plan in the manifest says how many tables there are",
            )

    def recipe(self, given: Recipe | None) -> Recipe:
        """Give the recipe of the columns; another one that is given is refused."""
        recipe = Recipe.from_dict(self._recipe) if given is None else given
        if recipe.id != self._recipe_id:
            raise RecipeMismatchError(
                f"{self.directory} was written with the recipe {self._recipe_id}, "
                f"found {recipe.name} ({recipe.id})",
                hint="leave the recipe out to use the one of the columns"
                if given
                else "a manifest has recipe.to_dict() and recipe.id of the same recipe",
            )
        return recipe


def _read(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= _LARGEST else b""
    except OSError as error:
        raise InputError(
            f"{path} can't be read: {error.strerror}",
            hint="name a directory of sorted columns; its manifest is written last",
        ) from None
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{path} isn't JSON", hint=_HINT) from None
    number = manifest.get("format") if isinstance(manifest, dict) else None
    if type(number) is not int or number < 1:
        raise InputError(f"{path} names no format, expected the number {FORMAT}", hint=_HINT)
    if number > FORMAT:
        raise TooNewError(
            f"{path} has the format {number}, this fpdb reads {FORMAT}",
            hint="install a newer fpdb",
            found=number,
            supported=FORMAT,
        )
    for name, kinds in _FIELDS.items():
        value = manifest.get(name, ...)
        if not isinstance(value, kinds) or isinstance(value, bool):
            found = "nothing" if value is ... else f"{value!r:.40}"
            expected = " or ".join(
                "null" if kind is type(None) else kind.__name__ for kind in kinds
            )
            raise InputError(f"{path}: found {found} as {name}, expected {expected}", hint=_HINT)
    return dict(manifest)
