"""Run the benchmarks, print their tables, and with --write put them into the docs."""

import argparse
import json
import os
import platform
import re
import sys
from pathlib import Path

import numpy
import store
import text

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "benchmarks.md"
SUITES = {"text": text.run, "store": store.run}


def machine():
    """Name what the figures were measured on."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        processor = found[1] if found else processor
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, numpy {numpy.__version__}"
    )


def table(rows):
    """Write rows, which all have the same columns, as Markdown."""
    columns = list(rows[0])
    lines = [
        columns,
        ["---"] * len(columns),
        *([str(row[name]) for name in columns] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write(suite, body):
    """Replace what stands between the marks of a suite on the page."""
    begin, end = f"<!-- bench {suite} -->", f"<!-- end {suite} -->"
    page = PAGE.read_text("utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        sys.exit(f"{PAGE} has no marks for {suite}")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{body}\n{end}", page), "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=list(SUITES), help=", ".join(SUITES))
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each row")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    parser.add_argument("--json", type=Path, help="keep the raw seconds in this file")
    arguments = parser.parse_args()
    raw = {"machine": machine()}
    for suite in arguments.suites:
        rows, seconds, notes = SUITES[suite](arguments.rounds)
        raw[suite] = seconds
        measured = f"Measured on {raw['machine']}; medians of {arguments.rounds} rounds."
        body = f"{notes} {measured}\n\n{table(rows)}"
        print(f"\n{body}\n")
        if arguments.write:
            write(suite, body)
    if arguments.json:
        arguments.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
