"""Crawl a site with crawl4ai, and store each page once: crawl4ai_crawler.py URL DB.

It fetches without a browser; for pages made by scripts, leave out the strategy.
"""

import asyncio
import sys

from crawl4ai import AsyncWebCrawler, CacheMode, CrawlerRunConfig
from crawl4ai.async_crawler_strategy import AsyncHTTPCrawlerStrategy

import fpdb


def store(db: fpdb.Database, url: str, page: str) -> fpdb.Added:
    """Store the main text of a page, unless its like is stored."""
    return db.add(url, fpdb.html_text(page).text, skip_duplicates=True)


async def crawl(db: fpdb.Database, start: str) -> None:
    """Visit a site, all new links of some pages together; none of a copy is followed."""
    config = CrawlerRunConfig(cache_mode=CacheMode.BYPASS, verbose=False)
    seen, new = {start}, [start]
    async with AsyncWebCrawler(crawler_strategy=AsyncHTTPCrawlerStrategy()) as crawler:
        while new:
            results = await crawler.arun_many(new, config=config)
            new = []
            for result in results:
                if not result.success:
                    print("failed", result.url, result.error_message, file=sys.stderr)
                    continue
                try:
                    added = await asyncio.to_thread(store, db, result.url, result.html)
                except fpdb.InputError as error:  # such as a page that is too large
                    print("refused", result.url, error, file=sys.stderr)
                    continue
                print(added.status, result.url, *(match.key for match in added.matches[:1]))
                if added.status != "duplicate":
                    links = {link["href"] for link in result.links["internal"]} - seen
                    seen |= links
                    new += sorted(links)


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
