"""Look at duplicates: on a page of a corpus, or at a database in the browser."""

import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from typing import Literal

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, ProgressLine, about_files, common_texts, not_utf8
from fpdb.cli.options import argument, option, require, require_name, require_page, takes
from fpdb.scratch import scratch_folder

_LEADING = "explore.html"


@takes(
    f"{options.READ} {options.SHOWN}",
    reading=fpdb.Reading,
    files=argument("FILE|DIR", "The documents, which are read twice."),
    output=option("--output -o FILE.html", "The page to write.", callback=require_page),
    db=option("--db DB", "Show the groups of a database, by its keys.", callback=require_name),
    passages=option("--passages", "Show which texts have passages in common."),
    shortest=option("--shortest N", "With --passages: fewest words of one that counts.", min=1),
    limit=option("--limit -n N", "The most groups to show.", min=1),
)
def report(
    files: list[str],
    reading: fpdb.Reading,
    output: Path = Path("report.html"),
    db: Path | None = None,
    similarity: float | None = None,
    passages: bool = False,
    least: float | None = None,
    shortest: int | None = None,
    common: list[str] | None = None,
    limit: int = 500,
    recipe: fpdb.Recipe | None = None,
    jobs: int = 0,
    bad: Literal["drop", "fail"] = "drop",
) -> None:
    """Show duplicates on a page, side by side.

    Example:
      fpdb report news.csv --text-field body --date-field published --host-field url

    The page is one file of at most 5 MB, the least similar texts first.
    Verdicts given there are saved as pairs for fpdb eval.
    """
    require(passages or least is None, "--least needs --passages")
    require(passages or shortest is None, "--shortest needs --passages")
    require(db is None or not common, "--common is for texts without --db")
    require(not passages or similarity is None, "--passages compares no whole texts")
    require(db is None or recipe is None, "--db has a recipe; --recipe is for texts without one")
    bad_records = BadRecords()
    recipe = recipe or fpdb.recipe(options.WEB)
    if common:
        recipe = recipe.replace(common=common_texts(common))
    with contextlib.nullcontext() if db is None else fpdb.open(db, readonly=True) as database:
        reported = fpdb.report(
            files, output, reading, database=database, recipe=recipe, similarity=similarity,
            passages=passages, least=0.1 if least is None else least, shortest=shortest,
            limit=limit, jobs=jobs, bad=bad, on_bad=bad_records, on_progress=ProgressLine(),
        )  # fmt: skip
    _summarise(reported, bad_records.count, passages=passages)
    bad_records.settle(reported.documents)


def _summarise(reported: fpdb.Reported, bad: int, *, passages: bool) -> None:
    noun, counts = "group", {"documents": reported.documents, "groups": reported.groups}
    counts |= {"identical": reported.identical, "edited": reported.edited, "bad": bad}
    if passages:
        noun, counts = "document", {"documents": reported.documents}
        counts |= {"with passages of others": reported.groups, "pairs": reported.pairs, "bad": bad}
    plain = {"path": str(reported.path), "bad": bad}
    plain |= {name: value for name, value in vars(reported).items() if isinstance(value, int)}
    read = ("invalid_utf8", "unreadable", "refused", "left_out", "encodings")
    render.summarise(
        plain | {name: vars(reported.counts)[name] for name in read},
        render.listed(counts),
        render.counted(
            "texts that weren't found in the sources, or have changed", reported.missing
        ),
        render.counted("dates that can't be read", reported.unread),
        *about_files(reported.counts),
        not_utf8(reported.counts.invalid_utf8, reported.counts.read),
        f"{reported.path}: {render.plural(reported.shown, noun)}, {render.size(reported.size)}",
    )


@takes(
    f"{options.READ} {options.SHOWN}",
    reading=fpdb.Reading,
    texts=options.TEXTS,
    write=option("--write", "Allow deletions."),
)
def explore(
    path: Path,
    reading: fpdb.Reading,
    texts: list[str] | None = None,
    write: bool = False,
    port: int = 0,
) -> None:
    """Explore a database in the browser.

    Example:
      fpdb explore crawl.fpdb --texts pages.jsonl --write

    It listens on this host only; the address works once. Ctrl-C ends it. What
    is deleted is first written to a file that fpdb load takes.
    """
    from fpdb.integrations import server  # it takes long to import, and is an extra

    access = server.Access(required=True)

    def announce(url: str) -> None:
        token = access.invite("write" if write else "read")
        address = f"{url}{access.base}/explore/?token={token}"
        render.row(address)
        render.flush()
        # Without a desktop, a browser in the terminal would be opened.
        if sys.platform == "darwin" or os.environ.get("DISPLAY", os.environ.get("WAYLAND_DISPLAY")):
            # Arguments of a process are read by all users of the machine, this file by its owner.
            page = folder / _LEADING
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">\n')
            webbrowser.open(page.as_uri())
        render.summarise(None, "Ctrl-C ends it")

    with (
        scratch_folder() as folder,
        fpdb.open(path, readonly=not write) as database,
        fpdb.Explorer(database, texts=texts or (), reading=reading, write=write) as pages,
    ):
        application = server.app(database, access=access, explorer=pages)
        render.show_log(server.__name__)
        server.serve(application, port=port, on_start=announce)
