"""Crawl a site, and store each page once: asyncio_crawler.py URL DB."""

import asyncio
import re
import sys
import urllib.request
from http.client import HTTPException
from urllib.parse import urljoin

import fpdb

AT_ONCE = 8


def fetch(url: str) -> tuple[bytes, str]:
    """Return a page of HTML and its Content-Type; of anything else, or on failure, nothing."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            if answer.headers.get_content_type() == "text/html":
                return answer.read(), answer.headers["Content-Type"]
    except (OSError, HTTPException) as error:
        print("failed", url, error, file=sys.stderr)
    return b"", ""


def store(db: fpdb.Database, url: str, page: bytes, content_type: str) -> fpdb.Added:
    """Store the main text of a page, unless its like is stored."""
    text = fpdb.html_text(page, content_type=content_type).text
    return db.add(url, text, skip_duplicates=True)


async def visit(db: fpdb.Database, url: str, seen: set[str], turn: asyncio.Semaphore) -> None:
    """Store a page unless its like is stored, and visit what it links to on the same site."""
    async with turn:
        page, content_type = await asyncio.to_thread(fetch, url)
        if not page:
            return
        try:
            added = await asyncio.to_thread(store, db, url, page, content_type)
        except fpdb.InputError as error:  # such as a page that is too large
            print("refused", url, error, file=sys.stderr)
            return
    print(added.status, url, *(match.key for match in added.matches[:1]))
    found = re.findall(r'href="(?!\S*//\[)([^"#]+)', page.decode("utf-8", "replace"))
    links = {urljoin(url, link) for link in found}
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
