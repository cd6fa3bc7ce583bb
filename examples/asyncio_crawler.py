"""Crawl a site, and store each page once: asyncio_crawler.py URL DB."""

import asyncio
import re
import sys
import urllib.request
from http.client import HTTPException
from urllib.parse import urljoin

import fpdb

AT_ONCE = 8


def fetch(url: str) -> str:
    """Return the HTML of a page; of anything else, or if it can't be fetched, nothing."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            if answer.headers.get_content_type() == "text/html":
                return answer.read().decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        print("failed", url, error, file=sys.stderr)
    return ""


async def visit(db: fpdb.Database, url: str, seen: set[str], turn: asyncio.Semaphore) -> None:
    """Store a page unless its like is stored, and visit what it links to on the same site."""
    async with turn:
        page = await asyncio.to_thread(fetch, url)
        if not page:
            return
        text = re.sub(r"<[^>]+>", " ", page)
        try:
            added = await asyncio.to_thread(db.add, url, text, skip_duplicates=True)
        except fpdb.InputError as error:  # such as a page that is too large
            print("refused", url, error, file=sys.stderr)
            return
    print(added.status, url, *(match.key for match in added.matches[:1]))
    links = {urljoin(url, link) for link in re.findall(r'href="(?!\S*//\[)([^"#]+)', page)}
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
