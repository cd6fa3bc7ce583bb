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


class Node:
    """An element of a page, with its attributes and the elements and texts in it."""

    def __init__(self, tag, attributes):
        self.tag = tag
        self.attributes = attributes
        self.children = []

    @property
    def text(self):
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def all(self, tag=None, of=None):
        """Yield the elements in it of a tag, and of a class."""
        for each in self.children:
            if isinstance(each, Node):
                named = (each.attributes.get("class") or "").split()
                if tag in (None, each.tag) and (of is None or of in named):
                    yield each
                yield from each.all(tag, of)


class Tree(Outline):
    """The elements of a page in each other."""

    def __init__(self, text):
        self.root = Node("", {})
        self._nodes = [self.root]
        super().__init__(text)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        node = Node(tag, dict(attributes))
        self._nodes[-1].children.append(node)
        if tag not in {"meta", "br", "input"}:
            self._nodes.append(node)

    def handle_endtag(self, tag):
        super().handle_endtag(tag)
        self._nodes.pop()

    def handle_data(self, data):
        super().handle_data(data)
        self._nodes[-1].children.append(data)


def groups_of(path):
    """Return the groups of a report: title, kind, similarity, and for each text keys and rows."""
    found = []
    for box in Tree(path.read_text(encoding="utf-8")).root.all("article"):
        [names] = [*box.all(of="names"), *box.all(of="copies")]
        sections = [each.all(of="texts") for each in box.all("section")]
        texts = [None, *(next(each, None) for each in sections)]
        found.append(
            {
                "title": next(box.all(of="title")).text,
                "kind": box.attributes["class"].split()[1],
                "low": float(box.attributes["data-low"]),
                "documents": int(box.attributes["data-size"]),
                "saved": json.loads(box.attributes["data-keys"]),
                "keys": [[key.text for key in each.all(of="name")] for each in names.children],
                "rows": [each and [row.text for row in each.all(of="text")] for each in texts],
                "text": box.text,
            }
        )
    return found
