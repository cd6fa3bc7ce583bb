"""Run the benchmarks, print their tables, and with --write put them into the docs."""

import argparse
import json
import os
import platform
import re
import tempfile
from pathlib import Path

import billion
import decide
import dedupe
import large
import numpy
import passages
import plot
import published
import serving
import similarity
import spark
import store
import texts
from _environment import ROOT

DOCS = ROOT / "docs" / "explanation"
PAGE, RAW, PICTURE = (DOCS / f"benchmarks.{end}" for end in ("md", "json", "svg"))
SUITES = {
    "texts": texts,
    "similarity": similarity,
    "dedupe": dedupe,
    "decide": decide,
    "serve": serving,
    "store": store,
}
# What other pages quote, or needs Java, or much of the disk: run only if named.
OTHERS = {"passages": passages, "spark": spark, "billion": billion, "large": large}
ON_PAGE = {*SUITES, "spark"}


def machine():
    """Name what the figures were measured on, and the file system, which decides many of them."""
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    folder, best = Path(tempfile.gettempdir()).resolve(), ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if folder.is_relative_to(place) and len(place) > len(best[0]):
            best = place, kind
    return (
        f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, numpy {numpy.__version__}; files on {best[1]}"
    )


def body(raw, *, page=False):
    found = store.tables(raw["records"], page=page) if "records" in raw else raw["tables"]
    shown = (published.table(rows) for rows in found if rows)
    return "\n\n".join([*filter(None, [raw["note"]]), *shown])


def write(suite, raw):
    """Replace the picture, and what is between the marks of a suite on the page."""
    shown = body(raw, page=True)
    if "records" in raw:
        PICTURE.write_text(plot.draw(raw["records"]), "utf-8")
        shown = f"![{plot.TITLE}]({PICTURE.name})\n\n{shown}"
    published.keep(RAW, {suite: raw})
    published.write(PAGE, f"bench {suite}", shown, end=f"end {suite}")


def main():
    every = SUITES | OTHERS
    parser = argparse.ArgumentParser(prog="tools/lab/bench", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"of {', '.join(every)}: the first six"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="numbers of documents: 1 M and 10 M; of requests"
    )
    names = [side.name for side in store.CONTENDERS[1:]]
    parser.add_argument("--peers", nargs="*", choices=names, default=names, help="beside fpdb")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each row: 5")
    parser.add_argument(
        "--documents", type=lambda text: int(float(text)), help="of billion: 1e9; large: 14.9e6"
    )
    parser.add_argument("--memory", type=int, help="in bytes; of billion: 1 GiB; large: 3 GiB")
    parser.add_argument("--folder", help="where billion and large make their files")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its picture")
    parser.add_argument("--again", action="store_true", help="tables from the figures kept before")
    options = parser.parse_args()
    suites = options.suites or list(SUITES)
    if unknown := set(suites) - set(every):
        parser.error(f"found {', '.join(unknown)}, expected {', '.join(every)}")
    before = json.loads(RAW.read_text("utf-8")) if options.again else {}
    for suite in suites:
        raw = before.get(suite) or {"machine": machine(), **every[suite].run(options)}
        print(f"\n{raw['machine']}\n\n{body(raw)}\n", flush=True)
        if options.write and suite in ON_PAGE:
            write(suite, raw)


if __name__ == "__main__":
    main()
