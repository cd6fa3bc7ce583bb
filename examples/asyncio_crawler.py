"""Crawl a site, and store each page once: asyncio_crawler.py URL DB."""

import asyncio
import re
import sys
import urllib.request
from urllib.parse import urljoin

import fpdb

AT_ONCE = 8


def fetch(url: str) -> str:
    """Return the HTML of a page."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode("utf-8", "replace")


async def visit(db: fpdb.Database, url: str, seen: set[str], turn: asyncio.Semaphore) -> None:
    """Store a page unless its like is stored, and visit what it links to on the same site."""
    async with turn:
        page = await asyncio.to_thread(fetch, url)
        text = re.sub(r"<[^>]+>", " ", page)
        added = await asyncio.to_thread(db.add, url, text, skip_duplicates=True)
    print(added.status, url, *(match.key for match in added.matches[:1]))
    links = {urljoin(url, link) for link in re.findall(r'href="([^"]+)"', page)}
    new = {link for link in links - seen if link.startswith(urljoin(url, "/"))}
    seen |= new
    await asyncio.gather(*(visit(db, link, seen, turn) for link in new))


def main(start: str, path: str) -> None:
    """Open the database, or create it, and crawl."""
    try:
        db = fpdb.open(path)
    except fpdb.DatabaseNotFoundError:
        db = fpdb.create(path)
    with db:
        asyncio.run(visit(db, start, {start}, asyncio.Semaphore(AT_ONCE)))


if __name__ == "__main__":
    main(*sys.argv[1:])
