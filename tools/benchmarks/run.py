"""Run the benchmarks, print their tables, and with --write put them into the docs."""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

import dedupe
import numpy
import plot
import serving
import similarity
import store
import tables
import texts

DOCS = Path(__file__).parents[2] / "docs" / "explanation"
PAGE, RAW, PICTURE = (DOCS / f"benchmarks.{end}" for end in ("md", "json", "svg"))
SIZES, LARGE = [1_000_000, 10_000_000], 100_000_000
KINDS = ["uniform", "clustered"]


def machine():
    """Name what the figures were measured on."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        processor = found[1] if found else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"numpy {numpy.__version__}"
    )


def file_system():
    """Name the file system that holds the databases, as it decides what a durable write costs."""
    folder, best = Path(tempfile.gettempdir()).resolve(), ("", "unknown")
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _, place, kind, *_ = line.split()
        if folder.is_relative_to(place) and len(place) > len(best[0]):
            best = place, kind
    return best[1]


def table(rows):
    """Write rows, which all have the same columns, as Markdown."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def body(raw):
    """Write what was measured by a suite as Markdown."""
    found = tables.Table(raw["records"]).tables() if "records" in raw else raw["tables"]
    return "\n\n".join([*filter(None, [raw["note"]]), *map(table, found)])


def write(suite, raw):
    """Replace the picture, and what is between the marks of a suite on the page."""
    shown = body(raw)
    picture = plot.draw(raw["records"]) if "records" in raw else None
    if picture:
        PICTURE.write_text(picture, "utf-8")
        shown = f"![{plot.TITLE}]({PICTURE.name})\n\n{shown}"
    begin, end = f"<!-- bench {suite} -->", f"<!-- end {suite} -->"
    page = PAGE.read_text("utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        sys.exit(f"{PAGE} has no marks for {suite}")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{shown}\n{end}", page), "utf-8")


def keep(path, raw):
    """Put what was measured into a file, beside what it has of other suites."""
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    shown = json.dumps({**before, **raw}, indent=1)
    # A record is easier to read on one line, and takes less room.
    for innermost in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):
        shown = re.sub(innermost, lambda found: " ".join(found[0].split()), shown)
    path.write_text(shown + "\n", "utf-8")


def rounds(count):
    return "1 round" if count == 1 else f"{count} rounds"


def run_texts(options):
    """Measure texts beside peers, and alone; return what to keep."""
    documents = options.sizes[0] if options.sizes else texts.DOCUMENTS
    found, figures, note = texts.run(documents, options.rounds)
    note += f" Medians of {rounds(options.rounds)}; what took {texts.SLOW} s isn't repeated."
    return {"note": note, "tables": found, "figures": figures}


def run_similarity(options):
    """Measure databases of similar texts; return what to keep."""
    sizes = options.sizes or SIZES[:1]
    rows = [row for size in sizes for row in similarity.run(size, options.rounds)]
    if options.bands:
        of_bands = [(SIZES[0], SIZES[0]), (options.bands, LARGE)]
        rows += similarity.run_bands(of_bands, options.rounds)
    return {"note": "", "tables": [rows]}


def run_store(options):
    """Measure the store beside its peers; return what to keep."""
    sizes = options.sizes or SIZES + [LARGE] * options.large

    def progress(records):
        if options.json:  # hours of work shouldn't hang on the last minute
            keep(options.json, {"store": {"machine": machine(), "records": records}})

    records, versions = store.run(sizes, options.data, options.rounds, options.peers, progress)
    note = (
        f"{', '.join(sorted(versions))}. Medians of {rounds(options.rounds)}; "
        f"a peer that takes more than {store.SLOW} s runs once."
    )
    return {"note": note, "versions": sorted(versions), "records": tables.Table(records).records}


def run_dedupe(options):
    """Measure how a corpus is cleaned; return what to keep."""
    sizes = options.sizes or SIZES[:1]
    found = [dedupe.run(size, options.rounds, list(dedupe.PEERS)) for size in sizes]
    rows = [row for rows, _ in found for row in rows]
    return {"note": " ".join(note for _, note in found), "tables": [rows]}


def run_serve(options):
    """Measure the server; return what to keep."""
    rows, note = serving.run(options.rounds)
    note = (
        f"{serving.DOCUMENTS:,} documents in a row, {serving.FEW:,} where each waits for the disk; "
        f"{note}; medians of {rounds(options.rounds)}."
    )
    if options.sizes:
        few, many = serving.memory_after(options.sizes[0])
        note += (
            f" Memory of the server's own: {few:,.0f} MiB after {10 * serving.DOCUMENTS:,} "
            f"requests, {many:,.0f} MiB after {options.sizes[0]:,}."
        )
    return {"note": note, "tables": [rows]}


RUNS = {
    "texts": run_texts,
    "similarity": run_similarity,
    "dedupe": run_dedupe,
    "serve": run_serve,
    "store": run_store,
}


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(RUNS)}: all")
    parser.add_argument("--large", action="store_true", help="measure 100 M documents too")
    parser.add_argument(
        "--bands", type=int, metavar="N", help="look up in the bands alone of N similar texts too"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="numbers of documents: 1 M and 10 M; of requests"
    )
    parser.add_argument("--data", nargs="+", choices=KINDS, default=KINDS, help="fingerprints")
    names = [side.name for side in store.CONTENDERS[1:]]
    parser.add_argument("--peers", nargs="*", choices=names, default=names, help="beside fpdb")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each row: 5")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its picture")
    parser.add_argument("--again", action="store_true", help="tables from the figures kept before")
    parser.add_argument("--json", type=Path, help="keep the raw seconds in this file")
    options = parser.parse_args()
    suites = options.suites or list(RUNS)
    if unknown := set(suites) - set(RUNS):
        parser.error(f"found {', '.join(unknown)}, expected {', '.join(RUNS)}")
    before = json.loads(RAW.read_text("utf-8")) if options.again else {}
    for suite in suites:
        raw = before[suite] if options.again else measured(RUNS[suite], options)
        print(f"\n{raw['machine']}\n\n{body(raw)}\n", flush=True)
        if options.json:
            keep(options.json, {suite: raw})
        if options.write:
            keep(RAW, {suite: raw})
            write(suite, raw)


def measured(run, options):
    return {"machine": f"{machine()}; files on {file_system()}", **run(options)}


if __name__ == "__main__":
    main()
