"""What can be had of a damaged data file: the entries of its trees, and of pages beside them.

Every page of a sound file is reached from the roots once, or is free. So the pages that are neither
must be those behind the damage, and the list of free ones tells them from what was deleted. If that
list isn't sound itself, only what is reached is taken.
"""

import contextlib
import sys
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from fpdb.errors import DamagedError, FpdbError
from fpdb.models import Problem
from fpdb.storage import header, preflight, states
from fpdb.storage.counters import Counters
from fpdb.storage.datafile import DATA_FILE
from fpdb.storage.header import Header
from fpdb.storage.nodes import HEAD, LEAF, OVERFLOW, Node, kind_of, number_of, read_page, run_of
from fpdb.storage.rawfile import METAS, Database, RawFile, Tree
from fpdb.storage.states import Choice, State

_NUMBER_BYTES = 8
_REACHED, _FREE = 1, 2
_LONGEST = 40  # pages of a record with the longest key and metadata


class Entry(NamedTuple):
    """An entry of a tree: the page it stands on, its key, and its value if that can be read."""

    page: int
    key: bytes
    value: bytes | None


class Stray(NamedTuple):
    """A page that no tree leads to any more: a leaf with its entries, or a value without its key.

    What stands behind the value, up to the end of its pages, isn't cut off.
    """

    page: int
    entries: list[Entry]
    value: bytes


class Salvage:
    """A data file that is read without LMDB, whatever it holds.

    `trees` are those of its newest state; `complete` says that they have all pages that they must
    have, and `beside` that pages which no tree leads to are known to be in use.
    """

    def __init__(self, directory: Path) -> None:
        self._file = RawFile(preflight.open_data(directory))
        self._searched = False
        self._databases: dict[str, Database] = {}
        self.problems: list[Problem] = []
        self.trees: dict[str, Tree] = {}
        self.complete = self.beside = False
        try:
            self._choose()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def header(self) -> Header | None:
        """Give the header; it never changes, so an old copy of it is as good as the newest."""
        for value in self._headers():
            with contextlib.suppress(FpdbError):
                return header.decode(value or b"")
        return None

    def counters(self) -> Counters | None:
        """Give the counters of the newest state, if they can be read."""
        value = states.entry(self._file, self._databases.get("header"), b"counters")
        try:
            return Counters.unpack(value)
        except DamagedError:
            return None

    def expected(self, name: str) -> int | None:
        """Say how many entries a tree must have, if that is known."""
        found = self._databases.get(name)
        return found.entries if found else None

    def entries(self, name: str) -> Iterator[Entry]:
        """Give the entries of a tree that can be reached, in their order."""
        tree = self.trees.get(name)
        for leaf in tree.leaves if tree else ():
            yield from self._entries(leaf)

    def adopt(self, name: str, leaf: int) -> None:
        """Count a stray leaf among those of a tree."""
        self.trees.setdefault(name, Tree()).leaves.append(leaf)

    def value(self, page: int, length: int) -> bytes | None:
        """Give the value that begins on an overflow page."""
        return self._file.value(Node(b"", _packed(page), length, big=True))

    def changed(self) -> bool:
        """Say whether somebody has written to the file meanwhile."""
        return states.numbers(self._file) != self._numbers

    def strays(self) -> Iterator[Stray]:
        """Give the pages that must be in use, though no tree leads to them any more."""
        if self.complete or not self.beside:
            return
        file = self._file
        self._search()
        # What a value holds isn't looked at as pages, whatever somebody has put there.
        for number in range(METAS, len(file.reached)):
            page = None if file.reached[number] else file.page(number)
            if page and kind_of(page) == OVERFLOW:
                file.cover(self._run(number, page)[1:])
        for kind in (LEAF, OVERFLOW):  # a leaf first: it says whose values its pages are
            for number in range(METAS, len(file.reached)):
                page = None if file.reached[number] else file.page(number)
                if page is None or kind_of(page) != kind:
                    continue
                file.reached[number] = _REACHED
                if kind == LEAF:
                    for node in read_page(page).nodes:
                        file.mark_run(file.run(node))
                    yield Stray(number, list(self._entries(number)), b"")
                else:
                    length = len(self._run(number, page)) * file.page_size - HEAD.size
                    yield Stray(number, [], self.value(number, length) or b"")

    def _run(self, number: int, page: bytes) -> range:
        """Give the pages of a value that no leaf leads to; what is too long for one is wrong."""
        pages = run_of(page)
        return range(number, number + (pages if 1 <= pages <= _LONGEST else 1))

    def _entries(self, leaf: int) -> Iterator[Entry]:
        for node in self._file.nodes(leaf):
            value = self._file.value(node)
            if value is None and not self._searched:
                self._search()
                value = self._file.value(node)
                if value is not None:
                    what = f"page {node.number} lies in the place of another one"
                    self._tell(DATA_FILE, what)
            yield Entry(leaf, node.key, value)

    def _headers(self) -> Iterator[bytes | None]:
        file = self._file
        yield states.entry(file, self._databases.get("header"), b"header")
        for number in range(METAS, file.pages):
            page = None if file.within(number) else file.page(number)
            if page and kind_of(page) == LEAF and b"header" in page:
                for node in read_page(page).nodes:
                    if node.key == b"header":
                        yield file.value(node)

    def _choose(self) -> None:
        self._numbers = states.numbers(self._file)
        choice = states.choose(self._file, search=True)
        self._follow(choice)
        if choice.state and not self.complete:
            self._search()
            if self._file.misplaced:
                choice = states.choose(self._file, search=True)
                self._follow(choice)
        if choice.state and not choice.named and not self.complete:
            # It may never have been committed: it only counts if nothing of it is missing.
            known = states.choose(self._file, search=False)
            if known.state:
                choice = known
                self._follow(choice)
        told = [Problem(DATA_FILE, fault) for fault in choice.faults]
        for number, place in self._file.misplaced.items():
            what = f"page {number} lies in the place of page {place}"
            told.append(Problem(DATA_FILE, what))
        if choice.state is None:
            told.append(Problem(DATA_FILE, "no state of the database is found"))
        elif not choice.named:
            told.append(Problem(DATA_FILE, "the newest state is one that no meta page names"))
        elif choice.doubt:
            what = "what the last commit added may be lost, what it took away may be back"
            told.append(Problem(DATA_FILE, what))
        elif choice.other and not self.complete and not self.beside:
            told += self._fall_back(choice, choice.other)
        self.problems = told + self.problems

    def _fall_back(self, choice: Choice, other: State) -> list[Problem]:
        """Take the state before the last commit, if of the newest hardly anything is left."""
        newest, problems = self._found(), self.problems
        self._follow(choice._replace(state=other))
        if self._found() > 2 * newest:
            what = (
                "the newest state can't be followed, so the one before the last commit is taken: "
                "what that added is lost, what it took away is back"
            )
            return [*problems, Problem(DATA_FILE, what)]
        self._follow(choice)
        return []

    def _found(self) -> int:
        """Count the leaves that can be reached."""
        return sum(len(tree.leaves) for tree in self.trees.values())

    def _follow(self, choice: Choice) -> None:
        """Walk through all trees of a state, and find out which other pages are in use."""
        file, state = self._file, choice.state
        self.problems, self.trees, self._databases = [], {}, {}
        self.complete = self.beside = False
        if state is None:
            return
        file.reached = bytearray(max(state.last_page + 1, file.pages))
        names = file.walk(state.main.root)
        self._databases = states.subdatabases(file, state.main)
        self.trees = {name: file.walk(tree.root) for name, tree in self._databases.items()}
        for name, tree in {"names": names, **self.trees}.items():
            for fault in tree.faults:
                self._tell(name, f"page {fault.page} {fault.what}")
        expected = sum(tree.pages for tree in self._databases.values()) + state.main.pages
        found = sum(tree.pages for tree in self.trees.values()) + names.pages
        damaged = any(tree.faults for tree in (names, *self.trees.values()))
        self.complete = found == expected and not damaged
        if not choice.named:
            return
        free = file.walk(state.free.root, _native)
        listed = None if free.faults else self._list_free(free, state.last_page)
        used = expected + state.free.pages
        if listed is None:
            self._tell("free pages", "the list of them is damaged")
        elif not names.faults and listed + used + METAS != state.last_page + 1:
            self._tell("free pages", "the list of them doesn't fit what is in use")
        else:
            self.beside = True

    def _list_free(self, tree: Tree, last_page: int) -> int | None:
        """Mark the free pages, and count them; nothing if their list isn't sound."""
        file, count = self._file, 0
        for leaf in tree.leaves:
            for node in file.nodes(leaf):
                pages = _free_pages(file.value(node))
                if pages is None or len(node.key) != _NUMBER_BYTES:
                    return None
                for page in pages:
                    if not METAS <= page <= last_page or file.reached[page]:
                        return None
                    file.reached[page] = _FREE
                count += len(pages)
        return count

    def _search(self) -> None:
        """Find the pages that lie in the place of another one."""
        file, self._searched = self._file, True
        found: dict[int, int] = {}
        for place in range(min(file.pages, len(file.reached))):
            head = b"" if file.within(place) else file.read(place * file.page_size, HEAD.size)
            number = number_of(head) if len(head) == HEAD.size else place
            if number == place or not METAS <= number < len(file.reached) or not kind_of(head):
                continue
            if file.page(number) is None:
                # Of several claims none is better than another.
                found[number] = -1 if number in found else place
        for number, place in found.items():
            if place >= 0:
                file.misplaced[number] = place

    def _tell(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))


def _native(key: bytes) -> int:
    return int.from_bytes(key, sys.byteorder)


def _packed(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, sys.byteorder)


def _free_pages(value: bytes | None) -> "array[int] | None":
    """Read a list of free pages: their number, and then they, the highest first."""
    if not value or len(value) % _NUMBER_BYTES:
        return None
    count, *pages = array("Q", value)
    falling = all(low < high for high, low in pairwise(pages))
    return array("Q", pages) if count == len(pages) and falling else None
