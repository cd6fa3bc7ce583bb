"""The pages of a data file: their faults, and all that can be read of a damaged one."""

import os
import struct
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

from fpdb.errors import DamagedError
from fpdb.models import Problem
from fpdb.progress import WorkStep, show
from fpdb.storage.lmdb_file import (
    BRANCH,
    DATA_FILE,
    DEEPEST,
    LAST_COMMIT_LOST,
    LEAF,
    METAS,
    NO_PAGE,
    OVERFLOW,
    LmdbFile,
    NodePage,
    kind_of,
    listed_pages,
    newest_state,
    parse_page,
    run_length,
    tree_of,
)
from fpdb.storage.open_checks import disk_named, name_of, open_data

_PAGE = 4096


def structure_faults(directory: Path) -> list[str]:
    """Return the faults of the pages of a data file, of their trees, and of the free pages.

    Every page must be reachable once, or free. Others may not write to the file meanwhile.
    """
    from lmdb import verify  # costs time that only a verification needs

    descriptor = open_data(directory)
    try:
        pages = os.fstat(descriptor).st_size // _PAGE
        show(WorkStep("follow all pages", pages, 0, "page"))
        with disk_named(directory):
            faults: list[str] = verify.verify(name_of(descriptor), subdir=False)  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        return [str(error)]
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        return [f"the structure can't be followed: {type(error).__name__}: {error}"]
    finally:
        os.close(descriptor)
    return faults


class Entry(NamedTuple):
    """An entry of a tree: its page, its key, and its value if that can be read."""

    page: int
    key: bytes
    value: bytes | None


class Survey:
    """The trees of the newest state that can be read of a file, and their faults."""

    def __init__(self, descriptor: int) -> None:
        self.file = LmdbFile(descriptor)
        self._problems: dict[Problem, None] = {}  # each once, in order
        self._seen = self.file.meta_bytes()
        meta, faults = newest_state(self.file)
        if meta is None:
            self.file.close()
            raise DamagedError(
                "both meta pages are lost, and deleted documents can't be distinguished",
                hint="restore the database from a backup",
            )
        self._newest = meta
        self._problems |= dict.fromkeys(Problem(DATA_FILE, fault) for fault in faults)
        # The older state is intact too, until the next commit.
        for state in (meta, *(other for other in self.file.metas() if other.valid)):
            self.trees = {"names": state.main}
            named = ((entry.key.decode(errors="replace"), entry) for entry in self.entries("names"))
            self.trees |= {name: tree for name, entry in named if (tree := tree_of(entry.value))}
            if len(self.trees) > 1:
                break
        if state.transaction != meta.transaction:
            self._problems[Problem(DATA_FILE, LAST_COMMIT_LOST)] = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    @property
    def problems(self) -> list[Problem]:
        """The faults of the pages that were read so far."""
        return list(self._problems)

    @property
    def outdated(self) -> bool:
        """Whether the state may be older than the last commit."""
        return Problem(DATA_FILE, LAST_COMMIT_LOST) in self._problems

    def changed(self) -> bool:
        """Return whether another process has written to the file meanwhile."""
        return self.file.meta_bytes() != self._seen

    def entries(self, name: str) -> Iterator[Entry]:
        """Yield the entries of a tree that can be read, in their order."""
        if name in self.trees and self.trees[name].root != NO_PAGE:
            reached = bytearray(self.file.pages)
            for fault, entry in self._below(reached, self.trees[name].root, b"", None):
                if entry:
                    yield entry
                else:
                    self._problems[Problem(name, fault)] = None

    def strays(self) -> Iterator[Entry]:
        """Yield the entries of leaves whose trees are lost; nothing says which tree one was of."""
        for number in self._stray_leaves:
            for node in self.file.nodes(number):
                yield Entry(number, node.key, self.file.value(node))

    @cached_property
    def _stray_leaves(self) -> list[int]:
        """The leaves of the newest state that no tree reaches.

        Every page that isn't free belongs to it. Where the list of free pages is lost, only the
        pages do by which the last commit has made the file longer. So nothing comes back that an
        earlier one has deleted.
        """
        newest, used = self._newest, bytearray(self.file.pages)
        for tree in self.trees.values():
            for _ in self._below(used, tree.root, b"", None):
                pass
        entries = list(self.file.entries(newest.free, self.file.pages))
        lists = [listed_pages(self.file.value(node)) for node in entries]
        number = METAS
        if len(lists) < newest.free.entries or None in lists:
            number = 1 + min(meta.last_page for meta in self.file.metas() if meta.valid)
        for page in chain.from_iterable(listed or () for listed in lists):
            if page < len(used):
                used[page] = True
        leaves = []
        while number <= newest.last_page and number < len(used):
            data = None if used[number] else self.file.page(number)
            if data and kind_of(data) == LEAF:
                leaves.append(number)
            # The bytes of a long value may look like a leaf.
            number += run_length(data) if data and kind_of(data) == OVERFLOW else 1
        return leaves

    def _below(
        self, reached: bytearray, number: int, low: bytes, high: bytes | None, depth: int = 1
    ) -> Iterator[tuple[str, Entry | None]]:
        """Yield the entries below a page, and faults; keys are at least `low`, and below `high`."""
        page, fault = NodePage(0, []), ""
        if not METAS <= number < len(reached) or depth > DEEPEST:
            fault = "doesn't exist"
        elif reached[number]:
            fault = "is used twice"
        elif (data := self.file.page(number)) is None:
            fault = "is lost"
        elif not (page := parse_page(data)).nodes:
            fault = "is damaged"
        else:
            reached[number] = True
        keys = [node.key for node in page.nodes]
        if page.kind == BRANCH:
            bounds = zip(page.nodes, [low, *keys[1:]], [*keys[1:], high], strict=True)
            for node, lowest, end in bounds:
                yield from self._below(reached, node.number, lowest, end, depth + 1)
        else:
            for node in page.nodes:
                if low <= node.key and (high is None or node.key < high):
                    yield "", Entry(number, node.key, self.file.value(node))
                else:
                    fault = "has other entries than belong there"
        if fault:
            yield f"page {number} {fault}", None
