"""Read the pages that reports write, with the parser of the standard library."""

import json
from collections import Counter
from html.parser import HTMLParser


class Outline(HTMLParser):
    """The elements of a page, their attributes, and the text in each kind."""

    def __init__(self, text):
        super().__init__()
        self.elements = Counter()
        self.attributes = set()
        self.content = {}
        self._open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements[tag] += 1
        self.attributes.update((tag, name) for name, _ in attributes)
        if tag not in {"meta", "br", "input"}:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.content.setdefault(self._open[-1] if self._open else "", []).append(data)


def data_of(path):
    """Return the data of a page, as its program reads them."""
    scripts = Outline(path.read_text(encoding="utf-8")).content["script"]
    return json.loads(scripts[0])
