"""Plan, create, describe, check, repair, compact and copy databases."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from math import log2
from pathlib import Path
from typing import Any, Literal

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import argument, option, parse_count, parse_similarity, require, takes
from fpdb.cli.output import settings, stats_dict
from fpdb.errors import DatabaseExistsError, FpdbError
from fpdb.fingerprint import WIDTHS
from fpdb.models import Stats
from fpdb.tables import Estimate, Plan, estimate_cost, plans

# A copy that begins later than a hold has the newest state of that moment. So it needs the bytes
# that were written until then, and expects at most this number.
_RESERVE = 1 << 30
# With this number of false matches a query or more, other bits or another k are better.
_MANY_BY_CHANCE = 0.1
# The recall of bands is shown at similarities that differ by these from the given one.
_AROUND = (-0.05, 0, 0.05, 0.1, 0.15)
_COSTS = ("bytes", "query", "insert")


@takes(
    similarity=options.NEW_SIMILARITY,
    k=options.NEW_K,
    passages=options.option("--passages", "Also keep passages, to find copied ones."),
    groups=options.option("--groups", "Also keep the group of each text."),
)
def create(
    path: Path,
    recipe: fpdb.Recipe = options.WEB,
    similarity: float | None = None,
    k: int | None = None,
    capacity: int = 1_000_000,
    key_type: options.KeyType | None = None,
    passages: bool = False,
    groups: bool = False,
) -> None:
    """Create a database.

    Example:
      fpdb create crawl.fpdb --similarity 0.9 --capacity 5e7

    Similarity and k are the recipe's, unless they are given.
    """
    with fpdb.create(
        path,
        recipe=recipe,
        similarity="recipe" if similarity is None else similarity or None,
        k=k,
        capacity=capacity,
        keys=key_type or "text",
        passages=passages,
        groups=groups,
    ) as database:
        stats = database.stats()
        if render.now.json or not render.now.quiet:
            render.report(settings(stats), stats_dict(stats))
        _warn_of_chance(stats)


def _warn_of_chance(stats: Stats) -> None:
    """Print a warning if questions of bits will often match unrelated documents by chance."""
    bits, k = stats.bits, stats.k
    chance = fpdb.chance_matches(bits, k, stats.capacity)
    if stats.similarity is None and chance >= _MANY_BY_CHANCE:
        wider = f"take a recipe of {2 * bits} bits, or " if bits < max(WIDTHS) else ""
        render.warn(
            f"a query will match about {chance:.2g} unrelated documents by chance, at "
            f"{stats.capacity:,} documents of {bits} bits and k={k}; {wider}create it with a "
            "smaller -k, or with the --capacity that you expect"
        )


@contextlib.contextmanager
def open_or_create(
    path: Path, recipe: fpdb.Recipe | None, similarity: float | None = None
) -> Iterator[fpdb.Database]:
    """Open a database for a block to write, or create it if there is nothing at its path.

    Without a recipe, a stored one may be any. A new one finds all that is similar enough, and at
    least what its recipe says: it then serves higher similarities as well. It is removed if the
    block fails with nothing in it: it would be in the way of another attempt, with another recipe.
    """
    new = False
    try:
        database = fpdb.open(path, recipe=recipe)
    except (fpdb.DatabaseNotFoundError, fpdb.NotADatabaseError):  # such as an empty directory
        try:
            wanted = recipe or fpdb.recipe(options.WEB)
            lower = similarity is not None and similarity < (wanted.similarity or 0)
            least: float | Literal["recipe"] | None = similarity if lower else "recipe"
            database, new = fpdb.create(path, recipe=wanted, similarity=least), True
        except DatabaseExistsError:  # another process was faster, or other files are there
            database = fpdb.open(path, recipe=recipe)
    with database:
        if new:
            stats = database.stats()
            near = f"similarity {stats.similarity}" if stats.similarity else f"k {stats.k}"
            render.summarise(None, f"created {path}: recipe {stats.recipe}, {near}")
            _warn_of_chance(stats)
        try:
            yield database
        except typer.Exit:  # a good end
            raise
        except BaseException:
            with contextlib.suppress(fpdb.FpdbError):
                if new and database.remove(only_empty=True):
                    render.summarise(None, f"removed {path}: nothing is in it")
            raise


def stats(path: Path) -> None:
    """Show counts, sizes and settings.

    Example:
      fpdb stats crawl.fpdb
    """
    stats = fpdb.describe(path)
    plain = stats_dict(stats)
    per_document, snapshots = plain["bytes_per_document"], stats.snapshots
    since = f", oldest by process {snapshots.oldest_pid}, {snapshots.behind:,} transactions behind"
    counts = {
        "documents": f"{stats.documents:,}",
        "short": f"{stats.short:,}",
        "sketches": "-" if stats.sketches is None else f"{stats.sketches:,}",
        "size": render.size(stats.bytes),
        "bytes per document": "-" if per_document is None else f"{per_document:,.1f}",
        "open snapshots": f"{snapshots.open:,}{since if snapshots.open else ''}",
        "created": plain["created"],
    }
    if stats.unfinished:
        counts["unfinished run"] = "; ".join(stats.unfinished)
    render.report(settings(stats) | counts, plain)


@takes(deep=option("--deep", "Also check every page of LMDB's own."))
def check(path: Path, deep: bool = False) -> None:
    """Check a database; exit 1 on problems.

    Example:
      fpdb check crawl.fpdb --deep
    """
    has_problems = False
    render.columns("where", "what")
    for problem in fpdb.check(path, deep=deep):
        has_problems = True
        render.result(problem._asdict(), *problem)
        render.flush()
    if has_problems:
        raise typer.Exit(render.ExitCode.NOT_FINE)
    render.summarise(None, "no problems")


@takes(output=options.NEW_PATH)
def repair(path: Path, output: Path) -> None:
    """Save what is intact of a damaged database.

    Example:
      fpdb repair crawl.fpdb --output repaired.fpdb
    """
    repaired = fpdb.repair(path, output)
    render.columns("where", "what")
    for where, what in (*repaired.problems, *(("lost", key) for key in repaired.lost)):
        render.result({"where": where, "what": what}, where, what)
    missing = "an unknown number" if repaired.missing is None else f"{repaired.missing:,}"
    lost = "" if repaired.missing == 0 else f"; {missing} lost"
    render.summarise(None, f"{output}: {render.plural(repaired.documents, 'document')}{lost}")
    if repaired.problems or repaired.lost or repaired.missing:
        raise typer.Exit(render.ExitCode.NOT_FINE)


@takes(
    output=options.NEW_PATH,
    replace=option("--replace", "Replace the database."),
    k=options.NEW_K,
    passages=option("--passages", "Make room for passages of texts that you ingest again."),
    groups=option("--groups", "Keep groups, decided in the order of adding."),
)
def compact(
    path: Path,
    output: Path | None = None,
    replace: bool = False,
    capacity: int | None = None,
    similarity: float | None = None,
    k: int | None = None,
    passages: bool = False,
    groups: bool = False,
) -> None:
    """Rewrite a database, to shrink or extend it.

    Example:
      fpdb compact crawl.fpdb --output larger.fpdb --capacity 5e7

    With --replace, writers wait until it is done, and programs that use it must
    open it again; fpdb serve and Scrapy's pipeline do, but not with other tables.
    """
    require(replace != (output is not None), "give either --output or --replace")
    with fpdb.open(path, readonly=not replace) as database:
        size = database.stats().bytes
        database.compact(
            output, capacity=capacity, k=k, similarity=similarity, passages=passages, groups=groups
        )
    _summarise(output or path, change=f" instead of {render.size(size)}", bytes_before=size)


def _summarise(path: Path, *, change: str = "", **more: object) -> None:
    with fpdb.open(path, readonly=True) as database:
        stats = database.stats()
    documents = render.plural(stats.documents, "document")
    holds = f"{path}: {documents}, {render.size(stats.bytes)}{change}"
    render.summarise(stats_dict(stats) | more, holds)


@takes(
    output=options.NEW_PATH,
    command=argument("-- COMMAND", "What copies the directory, in place of fpdb."),
)
def backup(path: Path, output: Path | None = None, command: list[str] | None = None) -> None:
    """Copy a database while it is in use.

    Example:
      fpdb backup crawl.fpdb --output /backup/crawl-monday.fpdb
      fpdb backup crawl.fpdb -- rsync -a crawl.fpdb/ backup:crawl.fpdb/

    While a command runs, the file grows with what others write, so prefer --output.
    The first $FPDB_BYTES bytes of data.mdb are enough for a copy. The exit code is
    that of the command.
    """
    require((output is None) == bool(command), "give either --output, or a command after --")
    if command:
        raise typer.Exit(_run_under_hold(path, command))
    with fpdb.open(path, readonly=True) as database:
        database.backup(output or path)
    _summarise(output or path)


def _run_under_hold(path: Path, command: list[str]) -> int:
    with fpdb.open(path, readonly=True) as database, database.hold():
        size = database.stats().bytes
        length = {"FPDB_BYTES": str(size + _RESERVE)}
        try:
            code = subprocess.call(command, env=os.environ | length)  # noqa: S603 - the user's own
        except OSError as error:
            raise FpdbError(
                f"{command[0]} can't be run: {error.strerror}",
                hint="write the command as in a shell, after --; --output names a new directory",
            ) from None
        except KeyboardInterrupt:
            code = render.ExitCode.INTERRUPTED
        grown = database.stats().bytes - size
    if grown:
        render.summarise(
            None, f"{path}: {render.size(grown)} larger; compact returns what isn't used"
        )
    return code if code >= 0 else 128 - code


@takes(
    bits=option("--bits 32|64|128", "The width of fingerprints.", rare=True),
    k=option("--k -k K", "The largest distance.", min=0),
    documents=option(
        "--documents -n N", "How many documents, e.g. 8e9 or 2**34.", parser=parse_count
    ),
    similarity=option(
        "--similarity J", "Plan for texts; shows the recall.", parser=parse_similarity
    ),
)
def plan(
    bits: int = 64, k: int = 3, documents: int = 1_000_000, similarity: float | None = None
) -> None:
    """Show table plans and what they cost.

    Example:
      fpdb plan --bits 64 -k 3 --documents 8e9

    An asterisk marks the plan that fpdb create takes, if a database can be so
    large. Times and bytes are estimates.
    """
    asked = {"bits": bits, "k": k, "documents": documents}
    listed = plans(bits, k, documents, similarity=similarity)
    if similarity is not None:
        del listed[1:]  # the bands are the same with other tables
    costed = [(plan, estimate_cost(plan, documents)) for plan in listed]
    facts, plain = _facts(*costed[0], documents, k, similarity)
    if render.now.json:
        rows = [
            {"chosen": not place and row[1].fits} | _plain(*row) for place, row in enumerate(costed)
        ]
        render.record(asked | plain | {"plans": rows})
        return
    lines = []
    for place, (plan, cost) in enumerate(costed):
        star = "*" if not place and cost.fits else ""
        counts = (star, f"{len(plan.tables)}", f"{plan.prefix}", f"{cost.probes:,}")
        candidates = render.number(cost.candidates_per_probe), render.number(cost.candidates)
        seconds = cost.similar_seconds or cost.seconds
        costs = render.size(cost.bytes), *map(render.duration, (seconds, cost.insert_seconds))
        lines.append((*counts, *candidates, *costs))
    names = ("", "tables", "prefix", "probes", "candidates/probe", "candidates")
    render.table((*names, *_COSTS), lines)
    render.row("")
    render.report({"documents": f"{documents:,}, 2**{log2(documents):.3g}"} | facts)


def _facts(
    plan: Plan, cost: Estimate, documents: int, k: int, similarity: float | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the matches by chance, and the recall of bands, in words and as plain data."""
    if plan.bands is None or similarity is None:
        chance = fpdb.chance_matches(plan.bits, k, documents)
        false = f"{render.number(chance)} a query by chance, if fingerprints were random"
        if chance >= _MANY_BY_CHANCE and plan.bits < max(WIDTHS):
            fewer = render.number(fpdb.chance_matches(2 * plan.bits, k, documents))
            false += f"; with {2 * plan.bits} bits {fewer}"
        return {"false matches": false}, {"chance_matches": chance}
    from fpdb.dedupe.run import SIZE, estimate_work  # it takes long to import

    shown = (round(max(0, min(similarity + apart, 1)), 2) for apart in _AROUND)
    recall = {f"{at:.2f}": round(plan.bands.recall(at), 4) for at in shown}
    chance, work = plan.bands.chance(documents), estimate_work(documents)
    total = cost.bytes + cost.key_bytes
    facts = {
        "bands": plan.bands.name,
        "recall": ", ".join(f"{share:.1%} at {at}" for at, share in recall.items()),
        "false matches": f"{render.number(chance)} a query by chance, compared by sketches",
        "size": f"{total / documents:.0f} B a document with a text key, {render.size(total)}",
        "dedupe": f"{render.duration(round(work.seconds))} on {work.jobs} processors for texts of "
        f"{SIZE} B, {render.size(work.bytes)} of memory, or of the disk",
    }
    plain = {"bands": asdict(plan.bands), "recall": recall, "chance_candidates": chance}
    plain["dedupe"] = work._asdict()
    return facts, plain | {"similarity": similarity}


def _plain(plan: Plan, cost: Estimate) -> dict[str, object]:
    return {"name": plan.name, "tables": len(plan.tables), "prefix": plan.prefix} | asdict(cost)
