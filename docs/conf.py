"""How Sphinx builds these pages."""

import re
from importlib.metadata import version as version_of

import fpdb

project = "fpdb"
author = "The fpdb authors"
copyright = "The fpdb authors"
release = version = version_of("fpdb-store")
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"  # for a module with __all__, that is the order of __all__
autodoc_typehints_format = "short"
default_role = "code"  # docstrings write `names` as Markdown does

# Links to other projects would need the network, so only fpdb's own names have to resolve.
nitpick_ignore_regex = [
    ("py:.*", r"(?!fpdb\b).*"),
    ("py:.*", r"fpdb\.(documents|fingerprint|io|storage)\..*"),
    ("py:.*", r"fpdb\.(queries\.(_T|Columns)|models\._Found)"),
]

html_theme = "furo"
html_title = f"fpdb {release}"


def link_public_name(app, env, node, contnode):
    """Link `fpdb.models.Match` in a signature to where it is documented, `fpdb.Match`."""
    parts = node.get("reftarget", "").split(".")
    if parts[0] == "fpdb" and node.get("refdomain") == "py":
        for place, part in enumerate(parts[1:], start=1):
            if part in fpdb.__all__:
                target = ".".join(["fpdb", *parts[place:]])
                where = (env, node["refdoc"], app.builder, node["reftype"])
                found = env.get_domain("py").resolve_xref(*where, target, node, contnode)
                if found is not None:
                    return found
    return None


def shorten_arrays(app, what, name, obj, options, signature, returned):
    """Write numpy's arrays in signatures the way the source does: `NDArray[uint64]`."""
    # At this point a `~` stands before each name of which only the last part will be shown.
    pattern = r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[(~[\w.]+)\]\]"
    short = r"~numpy.typing.NDArray[\1]"
    return tuple(text and re.sub(pattern, short, text) for text in (signature, returned))


def drop_module_docstring(app, what, name, obj, options, lines):
    """Leave out what a module says of itself, which is meant for readers of the source."""
    if what == "module":
        lines.clear()


def setup(app):
    app.connect("autodoc-process-signature", shorten_arrays)
    app.connect("autodoc-process-docstring", drop_module_docstring)
    app.connect("missing-reference", link_public_name)
