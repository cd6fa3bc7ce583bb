"""Crawl a site with Crawlee, and store each page once: crawlee_crawler.py URL DB."""

import asyncio
import sys

from crawlee import ConcurrencySettings
from crawlee.crawlers import BeautifulSoupCrawler, BeautifulSoupCrawlingContext
from crawlee.storage_clients import MemoryStorageClient

import fpdb


def store(db: fpdb.Database, url: str, page: bytes, content_type: str) -> fpdb.Added:
    """Store the main text of a page, unless its like is stored."""
    text = fpdb.html_text(page, content_type=content_type).text
    return db.add(url, text, skip_duplicates=True)


async def crawl(db: fpdb.Database, start: str) -> None:
    """Visit a site; no link of a copy is followed, as it leads to what is known."""
    crawler = BeautifulSoupCrawler(
        # Requests that an earlier run has visited aren't kept: the database has its pages.
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(desired_concurrency=8),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def visit(context: BeautifulSoupCrawlingContext) -> None:
        url, response = context.request.url, context.http_response
        content_type = response.headers.get("content-type", "")
        page = await response.read()
        try:
            added = await asyncio.to_thread(store, db, url, page, content_type)
        except fpdb.InputError as error:  # such as a page that is too large
            print("refused", url, error, file=sys.stderr)
            return
        print(added.status, url, *(match.key for match in added.matches[:1]))
        if added.status != "duplicate":
            await context.enqueue_links(strategy="same-origin")

    await crawler.run([start])


def main(start: str, path: str) -> None:
    """Open the database, or create it, and crawl."""
    try:
        db = fpdb.open(path)
    except fpdb.DatabaseNotFoundError:
        db = fpdb.create(path)
    with db:
        asyncio.run(crawl(db, start))


if __name__ == "__main__":
    main(*sys.argv[1:])
