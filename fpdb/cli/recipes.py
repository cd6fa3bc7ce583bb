"""List recipes, or show one."""

from fpdb.cli import render
from fpdb.cli.options import argument, choose_recipe, takes
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, write_recipe


@takes(name=argument("NAME|FILE.toml", "The recipe to show."))
def recipes(name: str | None = None) -> None:
    """List recipes, or show one as TOML.

    Example:
      fpdb recipes web > my.toml
    """
    if name is None:
        render.columns("name", "bits", "k", "similarity", "id", "description")
        for preset, each in PRESETS.items():
            plain = each.to_dict() | {"id": each.id, "description": DESCRIPTIONS[preset]}
            shown = (preset, each.bits, each.k, each.similarity or "off", each.id)
            render.result(plain, *shown, DESCRIPTIONS[preset])
        return
    recipe = choose_recipe(name)
    if render.now.json:
        render.record(recipe.to_dict() | {"id": recipe.id})
    else:
        for line in write_recipe(recipe).splitlines():
            render.row(line)
