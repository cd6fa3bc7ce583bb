"""Copy files without their near-duplicates."""

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import fpdb
from fpdb.arrays import Marks
from fpdb.cli import end_by_sigterm, options, render
from fpdb.cli.inputs import BadRecords, ProgressLine, is_terminal
from fpdb.cli.options import argument, option, require, require_file, takes
from fpdb.dedupe.run import worst_losses
from fpdb.io.files import check_path
from fpdb.io.paths import files_of, path_names
from fpdb.io.streams import SUFFIXES, suffix_of
from fpdb.joins.preference import Preference
from fpdb.models import Key
from fpdb.scratch import require_output, scratch_folder
from fpdb.storage.open_checks import is_vacant


@takes(
    options.READ,
    reading=fpdb.Reading,
    files=argument("FILE|DIR|-", "What to read; - is standard input."),
    format=option("--format FORMAT", "jsonl, tsv, csv, parquet or lines; by suffix."),
    output=option("--output -o FILE|-", "One file for what stays.", callback=require_file),
    output_dir=option("--output-dir DIR", "A folder, with a file for each input."),
    annotate=option("--annotate", "Keep all records, and add which one stays for each."),
    removed=option("--removed FILE", "JSON lines about what was left out.", callback=require_file),
    cut=option("--cut N", "First cut paragraphs that N texts have.", rare=True, min=2),
    k=options.NEW_K,
    source_field=option("--source-field F", "Field of the source; else the file.", rare=True),
    most=option("--most SHARE", "Stop if more of a source would go.", rare=True, min=0, max=1),
    database=option("--db DB", "Compare with earlier files, and remember these."),
    same_key=option(
        "--same-key keep|replace", "For keys that DB has with another text; see --db.", rare=True
    ),
    texts=option("--texts FILE", "Files with texts of DB, under the same keys.", rare=True),
    abandon=option("--abandon", "Forget a run that didn't finish; see --db.", rare=True),
    bad=option("--bad keep|drop|fail", "Records that can't be compared."),
    memory=option(
        "--memory N",
        "Memory for records' columns, beside 150 MB; default half of what is free.",
        rare=True,
        parser=options.parse_bytes,
    ),
    tmp=option(
        "--tmp DIR", "A folder for what the memory can't hold; default beside OUT.", rare=True
    ),
)
def dedupe(
    files: list[str],
    reading: fpdb.Reading,
    output: str | None = None,
    output_dir: str | None = None,
    annotate: bool = False,
    removed: str | None = None,
    cut: int | None = None,
    report: Path | None = None,
    similarity: float | None = None,
    k: int | None = None,
    recipe: fpdb.Recipe | None = None,
    keep: str = "first",
    source_field: str | None = None,
    most: float | None = None,
    lose: float | None = None,
    within: str | None = None,
    database: Path | None = None,
    same_key: Literal["keep", "replace"] | None = None,
    texts: list[str] | None = None,
    abandon: bool = False,
    bad: Literal["keep", "drop", "fail"] = "keep",
    memory: int | None = None,
    tmp: str | None = None,
    jobs: int = 0,
) -> None:
    """Copy files without near-duplicates.

    Example:
      fpdb dedupe part-*.parquet -o clean.parquet --removed removed.jsonl

    Copies JSON lines, CSV, TSV and Parquet; what stays is unchanged, in its order.
    With -o - it is printed. With --db, repeat a command that was interrupted: until then,
    other runs may be refused. A run with --abandon isn't, but later runs aren't compared with
    the output of the interrupted one. Records under a key of DB with another text are removed
    or added beside it; with --same-key replace they take its place, with --keep newest:F if newer.
    """
    require((output is None) != (output_dir is None), "give --output or --output-dir")
    require("-" not in files or not is_terminal(), "standard input is a terminal")
    _require_database(database, {"abandon": abandon, "same-key": same_key, "texts": texts})
    _require_outputs(output, removed, report, cut, alone=bool(database or render.now.json))
    if report:
        used_recipe, least = _compared_by(files, report, recipe, similarity, database, k)
    render.now.left = "run it again" if database else "nothing was written"
    end_by_sigterm(KeyboardInterrupt)
    bad_records, progress = BadRecords(), ProgressLine("record")
    texts_by_key = _texts_by_key(texts or [], database, recipe, reading, tmp, jobs)
    with _placed(output, tmp) as place, texts_by_key as text_of:
        counts = fpdb.dedupe(
            files, place, reading, output_dir=output_dir, database=database, abandon=abandon,
            similarity=similarity, k=k, recipe=recipe, keep=keep, lose=lose, within=within,
            same_key=same_key, texts=text_of, source_field=source_field, most=most,
            annotate=annotate, cut=cut, bad=bad, removed=removed, tmp=tmp, memory=memory, jobs=jobs,
            on_bad=bad_records, on_progress=progress,
            command=f"cd {shlex.quote(os.getcwd())} && {shlex.join(['fpdb', *sys.argv[1:]])}",
        )  # fmt: skip
    progress.summarise(_saved(counts), *worst_losses(counts.losses))
    if report:
        _write_report(counts.paths, report, reading, used_recipe, least, keep, jobs, counts.marks)
    bad_records.settle(counts.read - counts.bad)


def _require_database(database: Path | None, options: dict[str, object]) -> None:
    for name, value in options.items():
        require(database is not None or not value, f"--{name} is about a run with --db")


def _require_outputs(
    output: str | None, removed: str | None, report: Path | None, cut: int | None, *, alone: bool
) -> None:
    suffix = suffix_of(removed or "") or ".jsonl"
    is_file = removed != "-" and SUFFIXES.get(suffix) == "jsonl"
    require(is_file, f"--removed gets a file of JSON lines, found {removed}")
    printed = output == "-" and alone
    require(not printed, "-o - gets the records: --db needs a file, and --json another one")
    outputs = {os.path.realpath(path) for path in (output, removed) if path}
    is_own = report is None or os.path.realpath(report) not in outputs
    require(is_own, "--report gets a file of its own")
    require(not cut or not report, "--report compares whole texts, which --cut shortens")


@contextlib.contextmanager
def _placed(output: str | None, tmp: str | None) -> Iterator[str | None]:
    """Yield where the output is written; what is for standard output is copied there at the end."""
    if output != "-":
        yield output
        return
    with scratch_folder(Path(tmp, "dedupe") if tmp else None) as folder:
        path = folder / "output"
        yield str(path)
        with render.opened("-") as stream, path.open("rb") as file:
            shutil.copyfileobj(file, stream)


@contextlib.contextmanager
def _texts_by_key(
    files: list[str],
    database: Path | None,
    recipe: fpdb.Recipe | None,
    reading: fpdb.Reading,
    tmp: str | None,
    jobs: int,
) -> Iterator[Callable[[Key], str | None] | None]:
    """Yield what returns the text of a document, brought from all files into one that is searched.

    A database that isn't there yet has no documents.
    """
    if not files or database is None or is_vacant(database):
        yield None
        return
    from fpdb.look.sources import Texts  # which only this needs

    for path in files:
        check_path(path, reading)
    with scratch_folder(Path(tmp, "dedupe") if tmp else None) as folder:
        with fpdb.open(database, readonly=True, recipe=recipe) as db:
            texts = Texts(db, reading, folder / "texts", files)
            with texts.written() as add:
                for key, record in texts.records(dataclasses.replace(reading, keyed=False), jobs):
                    add(key, record.text or "")
        with texts.opened() as texts_of:
            yield lambda key: next(iter(texts_of(key)), None)


def _saved(counts: fpdb.Deduplicated) -> str:
    parts = ""
    if counts.removed:
        edited, saved = counts.removed - counts.copies, counts.bytes_saved
        parts = f"; exact copies {counts.copies:,}, edited {edited:,}"
        if saved is None:
            parts += ", annotated"
        elif saved > 0:  # of packed inputs, an output that isn't packed may be larger
            parts += f", {render.size(saved)} saved"
    if counts.own_share is not None:
        parts += f"; {counts.own_share:.1%} of what was removed isn't in the record it resembles"
    if counts.estimated:
        parts += f"; {counts.estimated:,} like a document of DB by an estimate, without its text"
    if counts.cut_records:
        parts += f"; {counts.cut_characters:,} characters cut from {counts.cut_records:,} records"
    if counts.delivered:
        parts += f"; {counts.delivered:,} under keys that were delivered before"
    if counts.meanwhile:
        parts += f"; {counts.meanwhile:,} not added to DB, which got similar ones meanwhile"
    return parts


def _write_report(
    files: list[str],
    report: Path,
    reading: fpdb.Reading,
    recipe: fpdb.Recipe,
    similarity: float | None,
    keep: str,
    jobs: int,
    marks: Marks | None,
) -> None:
    date = reading.date_field or Preference.of(keep).dated or None
    reading = dataclasses.replace(reading, date_field=date)
    render.now.left = "what stays is written, but no report"
    shown = fpdb.report(
        files, report, reading, recipe=recipe, similarity=similarity, jobs=jobs, kept=marks,
        on_progress=ProgressLine(),
    )  # fmt: skip
    render.summarise(
        None,
        render.counted("dates that can't be read", shown.unread),
        f"{report}: {shown.shown:,} of {render.plural(shown.groups, 'group')}",
    )


def _compared_by(
    files: list[str],
    report: Path,
    recipe: fpdb.Recipe | None,
    similarity: float | None,
    database: Path | None,
    k: int | None,
) -> tuple[fpdb.Recipe, float | None]:
    require(k is None, "--report shows what is similar, and takes no -k")
    require("-" not in files, "--report reads files again, and no standard input")
    require(report.parent.is_dir(), f"there is no folder for {report}")
    require_output(report, files_of(path_names(files)))
    used_recipe = recipe or fpdb.recipe(options.WEB)
    least = used_recipe.similarity
    if database:
        with (
            contextlib.suppress(fpdb.DatabaseNotFoundError, fpdb.NotADatabaseError),
            fpdb.open(database, readonly=True, recipe=recipe) as db,
        ):
            used_recipe, least = db.recipe, db.similarity
    least = least if similarity is None else similarity
    require(least is not None, "--report shows what is similar, and fingerprints are compared here")
    return used_recipe, least
