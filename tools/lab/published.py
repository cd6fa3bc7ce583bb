"""Put what was measured on a page of the documentation: tables, pictures, and the raw figures."""

import io
import json
import re
import sys


def table(rows):
    """Write rows, which all have the same columns, as Markdown."""
    columns = list(rows[0])
    lines = [columns, *([row[name] for name in columns] for row in rows)]
    heading, *further = (f"| {' | '.join(map(str, cells))} |" for cells in lines)
    return "\n".join([heading, f"|{'---|' * len(columns)}", *further])


def write(page, mark, shown, end=None):
    """Replace what is between two marks on a page."""
    begin, end = f"<!-- {mark} -->", f"<!-- {end or f'end {mark}'} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text = page.read_text("utf-8")
    if not pattern.search(text):
        sys.exit(f"{page} has no marks for {mark}")
    page.write_text(pattern.sub(lambda _: f"{begin}\n{shown}\n{end}", text), "utf-8")


def keep(path, raw):
    """Put what was measured into a file, beside what it has of other parts."""
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    shown = json.dumps({**before, **raw}, indent=1, ensure_ascii=False)
    # A record is easier to read on one line, and takes less room.
    for innermost in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):
        shown = re.sub(innermost, lambda found: " ".join(found[0].split()), shown)
    path.write_text(shown + "\n", "utf-8")


def svg(draw, **size):
    """Return a picture that a function draws on a figure."""
    # Only who draws needs it.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure, output = Figure(**size, layout="constrained"), io.StringIO()
    draw(figure)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fpdb"}):
        figure.savefig(output, format="svg", metadata={"Date": None})
    return output.getvalue()
