"""A spider that yields each page of a site."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor


class PagesSpider(scrapy.Spider):
    """Follows the links of a page within its site: `scrapy crawl pages -a start=URL`."""

    name = "pages"
    links = LinkExtractor()

    def __init__(self, start: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.first = start
        self.allowed_domains = [urlsplit(start).hostname or ""]

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Begin with the page that was named."""
        if self.first:
            yield scrapy.Request(self.first)
        else:
            self.logger.error("Name the first page: scrapy crawl pages -a start=URL")

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield the page, and what it links to."""
        if isinstance(response, TextResponse):
            yield {"url": response.url, "html": response.text}
            yield from response.follow_all(self.links.extract_links(response))
