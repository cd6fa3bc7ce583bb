"""Take the pictures of the documentation from the product, with news that it makes itself."""

import argparse
import base64
import contextlib
import datetime
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import browsers
from _environment import ROOT

DOCS = ROOT / "docs"
STORIES = 600
WIDTH, MARGIN = 1200, 8
NEWS = "local-news.jsonl"
FIRST = datetime.date(2026, 1, 5)
HOSTS = ["daily.example", "post.example", "lindow-news.example", "herald.example"]
PLACES = ["Lindow", "Carrow", "Merrow", "Penmoor", "Harrowby", "Saltby", "Oakridge", "Tarn Hill"]
MONTHS = ["April", "May", "June", "July", "September", "October"]
TITLES = [
    "A second life for the mill of {place}",
    "The bridge at {place} is closed",
    "Red kites return to {place}",
    "{place} votes on its new station",
    "What became of the ferry to {place}?",
    "The library of {place} opens again",
]
SENTENCES = [
    "The old bridge at {place} is closed until {month}, because the river has washed out a pier.",
    "Wardens counted {n} pairs of red kites above {place}, {few} more than in the year before.",
    "The ferry from {place} to {other} runs every {few} hours, as long as the wind allows it.",
    "{n} volunteers cleared the path between {place} and {other} in a single weekend in {month}.",
    "A storm felled {n} trees in the park of {place}, among them the lime that the school planted.",
    "The school of {place} opens its doors again in {month}, after {n} weeks of repairs.",
    "{place} and {other} share a fire engine from {month} on, and {few} crews take turns.",
    "The price of a ticket from {place} to {other} rises by {few} percent in {month}.",
    "The bakery in {place} bakes {n} loaves before six, and sells the last of them at noon.",
    "In the library of {place}, {n} books wait for readers who borrowed them before {month}.",
    "The market of {place} moves to the square beside the mill, which {few} families now share.",
    "Nobody in {other} remembers when the station of {place} last had {few} platforms in use.",
]


def filled(choose, text):
    """Put places, months and numbers into a sentence."""
    place, other = choose.sample(PLACES, 2)
    return text.format(
        place=place, other=other, month=choose.choice(MONTHS), n=choose.randint(11, 60),
        few=choose.randint(2, 9),
    )  # fmt: skip


def edited(choose, sentences):
    """Return the text of a copy: the same, or with a sentence or some of its words replaced."""
    copy = list(sentences)
    for place in choose.sample(range(len(copy)), choose.choice([0, 0, 1, 1, 1, 2])):
        words = copy[place].split()
        words[choose.randrange(1, len(words))] = choose.choice(["old", "small", "new", "quiet"])
        whole = filled(choose, choose.choice(SENTENCES))
        copy[place] = choose.choice([" ".join(words), whole])
    return copy


def news(choose):
    """Yield articles: stories, and what other papers took from them in the next days."""
    for number in range(STORIES):
        date = FIRST + datetime.timedelta(days=number // 2)
        sentences = [filled(choose, choose.choice(SENTENCES)) for _ in range(choose.randint(8, 14))]
        title = filled(choose, choose.choice(TITLES))
        papers = choose.sample(HOSTS, choose.choice([1, 1, 1, 2, 2, 3, 4]))
        for late, host in enumerate(papers):
            day = date + datetime.timedelta(days=late)
            body = edited(choose, sentences) if late else sentences
            yield {
                "url": f"https://{host}/{day:%Y/%m}/{number}",
                "title": title,
                "date": day.isoformat(),
                "text": "\n\n".join(" ".join(body[at : at + 5]) for at in range(0, len(body), 5)),
            }


def fpdb(*arguments, folder):
    """Run a command of the package that is beside this file."""
    subprocess.run([sys.executable, "-m", "fpdb", *arguments], cwd=folder, check=True)


@contextlib.contextmanager
def explorer(folder):
    """Serve the pages over a database, and return the address that lets a browser in."""
    options = ["crawl.fpdb", "--texts", NEWS, "--write", "--quiet"]
    command = [sys.executable, "-m", "fpdb", "explore", *options]
    silent = {"BROWSER": "true", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=silent, stdout=pipe, text=True) as process:
        try:
            yield next(line.strip() for line in process.stdout if line.startswith("http"))
        finally:
            process.terminate()


def take(reader, last, path):
    """Save the page from its top to the end of an element."""
    window = reader.window
    end = window.execute_script(
        "return arguments[0].getBoundingClientRect().bottom + scrollY", last
    )
    part = {"x": 0, "y": 0, "width": WIDTH, "height": end + MARGIN, "scale": 1}
    whole = {"clip": part, "captureBeyondViewport": True}
    shown = window.execute_cdp_cmd("Page.captureScreenshot", whole)["data"]
    path.write_bytes(base64.b64decode(shown))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def show_report(reader, folder):
    """Open the first group of a report at its last text, and return the row of the next group."""
    fpdb("report", NEWS, "--quiet", folder=folder)
    reader.window.get(Path(folder, "report.html").as_uri())
    group, following = reader.all(".head")[:2]
    group.click()
    if others := [button for button in reader.all(".tabs button") if button.is_displayed()]:
        others[-1].click()
    return following


def show_group(reader, address):
    """Open the largest group in the explorer, and return the end of the page."""
    base = address.partition("?")[0]
    reader.window.get(address)
    limit = time.monotonic() + 60
    while not reader.all("a.head"):  # the groups are being found
        if time.monotonic() > limit:
            sys.exit(f"found no group within a minute on {base}")
        time.sleep(0.2)
        reader.window.get(f"{base}groups?order=large")
    reader.all("a.head")[0].click()
    return reader.one("main")


def main():
    parser = argparse.ArgumentParser(prog="tools/docs --pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DOCS, help="where to save them: docs")
    saved = parser.parse_args().folder
    if not browsers.installed():
        parser.error("found no Chromium with its driver, expected Debian's chromium-driver")
    with tempfile.TemporaryDirectory() as made, browsers.started(Path(made)) as window:
        articles = sorted(news(random.Random(1)), key=lambda article: article["date"])
        lines = "".join(json.dumps(article) + "\n" for article in articles)
        Path(made, NEWS).write_text(lines, encoding="utf-8")
        reader = browsers.Reader(window)
        reader.resize(WIDTH)
        window.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        take(reader, show_report(reader, made), saved / "report.png")
        fpdb("ingest", "crawl.fpdb", NEWS, "--meta-field", "*", "--quiet", folder=made)
        with explorer(made) as address:
            take(reader, show_group(reader, address), saved / "explore.png")


if __name__ == "__main__":
    main()
