"""The pages of a data file: what is wrong with them, and what can be read of a damaged one."""

import os
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from fpdb.errors import DamagedError
from fpdb.models import Problem
from fpdb.progress import WorkStep, show
from fpdb.storage import lmdb_file
from fpdb.storage.lmdb_file import DATA_FILE, METAS, LmdbFile, Node, NodePage
from fpdb.storage.open_checks import disk_named, name_of, open_data

# Pages that a file may lack at its end: taken and given back by transactions, and never written.
_FREE_TAIL = 1 << 20
_LONGEST_RUN = 40  # pages of a record with the longest key and the longest metadata
_FREE_KEY_BYTES = 8
_PAGE = 4096


def structure_faults(directory: Path) -> list[str]:
    """Return what is wrong with the pages of a data file, their trees, and the free pages.

    Every page must be reachable once, or free. Others may not write to the file meanwhile.
    """
    from lmdb import verify  # costs time that only a verification needs

    descriptor = open_data(directory)
    try:
        pages = os.fstat(descriptor).st_size // _PAGE
        show(WorkStep("follow all pages", pages, 0, "page"))
        with disk_named(directory):
            found: list[str] = verify.verify(name_of(descriptor), subdir=False)  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        return [str(error)]
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        return [f"the structure can't be followed: {type(error).__name__}: {error}"]
    finally:
        os.close(descriptor)
    return found


class Walk:
    """One tree, followed from its root: its leaves, and its faults."""

    def __init__(self, file: LmdbFile, root: int, *, sorted_keys: bool = True) -> None:
        self.leaves = array("Q")
        self.faults: list[str] = []
        self._file = file
        self._sorted_keys = sorted_keys
        if root != lmdb_file.NO_PAGE:
            self._down(root, None, None, 1)

    def _down(self, number: int, low: bytes | None, high: bytes | None, depth: int) -> None:
        """Follow a page and all below it; its keys are at least `low`, and below `high`."""
        file = self._file
        page, fault = NodePage(0, [], intact=False), ""
        if not METAS <= number < len(file.reached) or depth > lmdb_file.DEEPEST:
            fault = "doesn't exist"
        elif file.reached[number]:
            fault = "is a page of something else"
        elif (data := file.page(number)) is None:
            fault = "is lost"
        elif not (page := lmdb_file.parse_page(data)).nodes:
            fault = "can't be read"
        elif page.kind == lmdb_file.LEAF and not self._fits(page.nodes, low, high):
            fault = "has other entries than belong there"
        if fault:
            self.faults.append(f"page {number} {fault}")
            return
        file.reached[number] = lmdb_file.REACHED
        if not page.intact:
            self.faults.append(f"page {number} is damaged, {len(page.nodes)} entries could be read")
        if page.kind == lmdb_file.BRANCH:
            keys: list[bytes | None] = [node.key for node in page.nodes]
            bounds = zip(page.nodes, [low, *keys[1:]], [*keys[1:], high], strict=True)
            for node, below, above in bounds:
                self._down(node.number, below, above, depth + 1)
            return
        self.leaves.append(number)
        for node in page.nodes:
            if not file.mark_run(file.run(node)):
                self.faults.append(f"page {node.number} is used twice, or doesn't exist")

    def _fits(self, nodes: list[Node], low: bytes | None, high: bytes | None) -> bool:
        """Return whether most keys of a leaf are where the branches above it lead to."""
        inside = sum(
            (low is None or node.key >= low) and (high is None or node.key < high) for node in nodes
        )
        return not self._sorted_keys or 2 * inside >= len(nodes)


class Entry(NamedTuple):
    """An entry of a tree: its page, its key, and its value if that can be read."""

    page: int
    key: bytes
    value: bytes | None


class Survey:
    """Which pages the newest readable state of a file uses, and what is wrong with them.

    In an intact file, every page is reached once from the roots, or is free. So those that are
    neither are cut off by damage, and the list of free pages distinguishes them from deleted ones.
    If that list is damaged itself, only what is reached counts.
    """

    def __init__(self, descriptor: int) -> None:
        self.file = LmdbFile(descriptor)
        self.trees: dict[str, lmdb_file.Tree] = {}
        self.leaves: dict[str, array[int]] = {}
        self.problems: list[Problem] = []
        self.strays_known = False
        self._seen = self.file.meta_bytes()
        try:
            self._follow()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def changed(self) -> bool:
        """Return whether another process has written to the file meanwhile."""
        return self.file.meta_bytes() != self._seen

    def entries(self, name: str) -> Iterator[Entry]:
        """Yield the entries of a tree that can be reached, in their order."""
        for leaf in self.leaves.get(name, ()):
            yield from self._entries(leaf)

    def copies_of(self, key: bytes) -> Iterator[bytes]:
        """Yield the values of a key in all leaves of the file, old ones too."""
        file = self.file
        for number in range(METAS, file.pages):
            inside = number < len(file.reached) and file.reached[number] == lmdb_file.WITHIN
            page = None if inside else file.page(number)
            if page and lmdb_file.kind_of(page) == lmdb_file.LEAF and key in page:
                for node in lmdb_file.parse_page(page).nodes:
                    if node.key == key:
                        yield file.value(node) or b""

    def stray_leaves(self) -> Iterator[tuple[int, list[Entry]]]:
        """Yield the leaves in use, with their entries, to which no tree leads any more."""
        if not self.strays_known:
            return
        # The inside of a value is never taken for pages, whatever is stored there.
        for number, page in self._unreached(lmdb_file.OVERFLOW):
            for further in self._run(number, page)[1:]:
                if further >= len(self.file.reached) or self.file.reached[further]:
                    break
                self.file.reached[further] = lmdb_file.WITHIN
        for number, _ in self._unreached(lmdb_file.LEAF):
            self.file.reached[number] = lmdb_file.REACHED
            yield number, list(self._entries(number))

    def _unreached(self, kind: int) -> Iterator[tuple[int, bytes]]:
        for number in range(METAS, len(self.file.reached)):
            page = None if self.file.reached[number] else self.file.page(number)
            if page and lmdb_file.kind_of(page) == kind:
                yield number, page

    def _run(self, number: int, page: bytes) -> range:
        """Return the pages of a lost value; a length that can't be right is 1."""
        pages = lmdb_file.run_length(page)
        return range(number, number + (pages if 1 <= pages <= _LONGEST_RUN else 1))

    def _entries(self, leaf: int) -> Iterator[Entry]:
        for node in self.file.nodes(leaf):
            yield Entry(leaf, node.key, self.file.value(node))

    def _follow(self) -> None:
        """Walk through all trees of a state, and find out which other pages are in use."""
        file = self.file
        meta, faults = lmdb_file.newest_state(file)
        self.problems += [Problem(DATA_FILE, fault) for fault in faults]
        if meta is None:
            raise DamagedError(
                "both meta pages are lost, and deleted documents can't be distinguished",
                hint="restore the database from a backup",
            )
        last_page = meta.last_page
        if not METAS <= last_page < file.pages + _FREE_TAIL:
            last_page = file.pages - 1
        file.reached = bytearray(max(last_page + 1, file.pages))
        walks = {"names": Walk(file, meta.main.root)}
        self.trees = file.named_trees(meta.main)
        walks |= {name: Walk(file, tree.root) for name, tree in self.trees.items()}
        self.leaves = {name: walk.leaves for name, walk in walks.items()}
        for name, walk in walks.items():
            self.problems += [Problem(name, fault) for fault in walk.faults]
        used = meta.main.pages + sum(tree.pages for tree in self.trees.values())
        listed = self._mark_free(meta, last_page)
        fits = listed is not None and METAS + used + meta.free.pages + listed == last_page + 1
        # Without all names, it isn't known how many pages are in use.
        self.strays_known = fits or (listed is not None and bool(walks["names"].faults))
        if not self.strays_known:
            self.problems.append(Problem("free pages", "the list of them is damaged"))

    def _mark_free(self, meta: lmdb_file.Meta, last_page: int) -> int | None:
        """Mark the free pages, and return their number; None if their list is damaged."""
        file, count = self.file, 0
        walk = Walk(file, meta.free.root, sorted_keys=False)
        for node in (node for leaf in walk.leaves for node in file.nodes(leaf)):
            pages = lmdb_file.listed_pages(file.value(node))
            if pages is None or len(node.key) != _FREE_KEY_BYTES:
                return None
            for page in pages:
                if not METAS <= page <= last_page or file.reached[page]:
                    return None
                file.reached[page] = lmdb_file.FREE
            count += len(pages)
        return None if walk.faults else count
