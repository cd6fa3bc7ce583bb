"""A spider that yields the text of each page of a site."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class PagesSpider(scrapy.Spider):
    """Follows the links of a page: `scrapy crawl pages -a start=URL`."""

    name = "pages"

    def __init__(self, start: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.first = start

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Begin with the page that was named."""
        yield scrapy.Request(self.first)

    def parse(self, response: Response) -> Iterator[Any]:
        """Yield the page, and what it links to."""
        yield {"url": response.url, "text": " ".join(response.css("body ::text").getall())}
        yield from response.follow_all(css="a")
