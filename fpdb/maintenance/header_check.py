"""Check the header of a database: whether its fields fit each other and the tables."""

from collections.abc import Iterator

from fpdb.documents import Catalog
from fpdb.errors import FpdbError
from fpdb.fingerprint import Recipe
from fpdb.models import Problem
from fpdb.storage import ReadTransaction, header
from fpdb.storage.header import Header
from fpdb.tables import Index, Plan

# What every header has beside the fields that are needed to open the database.
_FIELDS = {"recipe_id": str, "capacity": int}


def check_header(txn: ReadTransaction, index: Index, catalog: Catalog) -> Iterator[Problem]:
    """Yield what is wrong in the header that is stored now."""
    try:
        head = header.decode(txn.get("header", b"header") or b"")
        header.require_openable(head, readonly=True)
    except FpdbError as error:
        yield Problem("header", str(error))
        return
    for name, kind in _FIELDS.items():
        if type(head.get(name)) is not kind:
            what = f"{name} is of type {type(head.get(name)).__name__}, expected {kind.__name__}"
            yield Problem("header", what)
    if head["keys"] != catalog.kind:
        yield Problem("header", f"the keys are {head['keys']!r}, expected {catalog.kind!r}")
    sketch = header.MINHASH if catalog.sketched else None
    if head.get("sketch") != sketch or (header.MINHASH in head["features"]) != catalog.sketched:
        what = f"it keeps the sketches {head.get('sketch')!r}, with features {head['features']}"
        yield Problem("header", what)
    yield from _check_plan(head, index)
    yield from _check_recipe(head, index)


def _check_plan(head: Header, index: Index) -> Iterator[Problem]:
    try:
        plan = Plan.from_dict(head["plan"])
    except FpdbError as error:
        yield Problem("header", f"the plan: {error}")
        return
    if plan != index.plan:
        yield Problem("header", f"the plan is {plan.name}, expected {index.plan.name}")


def _check_recipe(head: Header, index: Index) -> Iterator[Problem]:
    recipe = head["recipe"]
    if recipe.get("bits") != index.plan.bits:
        what = f"the recipe has {recipe.get('bits')!r} bits, expected {index.plan.bits}"
        yield Problem("header", what)
    choice = recipe.get("hash")
    if isinstance(choice, dict) and choice.get("secret") is not None:
        return  # whoever doesn't know the secret can't build the recipe
    try:
        expected = Recipe.from_dict(recipe).id
    except FpdbError as error:
        yield Problem("header", f"the recipe: {error}")
        return
    if head.get("recipe_id") != expected:
        what = f"the id of the recipe is {head.get('recipe_id')!r}, expected {expected!r}"
        yield Problem("header", what)
