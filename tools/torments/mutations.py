"""Changes aimed at LMDB's structure: which of them a reader notices, and when."""

import collections
import contextlib
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import xxhash
from damage import SHAPES, Shape, Source, apart, check, damage, prepare, read
from figures import ControlError, Figures, going

from fpdb import kernels
from fpdb.storage import format as layouts
from fpdb.storage import number_pages, text_pages
from fpdb.storage.lmdb_file import (
    BRANCH,
    NODE_HEAD,
    PAGE_HEAD,
    REACHED,
    NodePage,
    kind_of,
    parse_page,
)
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

ROUNDS = 384
# Most pages of the first are as a bulk load fills them, and so of the same length.
_SHAPES = [Shape("loaded", "integer", 64, 20_000, 60, {}), SHAPES[1], SHAPES[3]]
_PAGE = 4096
_META = range(16, 152)  # what a meta page holds after its head
_ROOTS = (80, 128)  # of its trees
_TREE = 48  # bytes of the description of a tree, the last 8 of which are its root
_CONTROLS = 12


class Layout(NamedTuple):
    """The pages of an undamaged file that are reached from its roots."""

    pages: list[int]
    nodes: list[int]  # the leaves and branches among them
    branches: list[int]
    values: list[list[int]]  # the overflow pages of values, those of the same length together
    trees: list[int]  # where the descriptions of the trees end


def layout_of(source: Source) -> Layout:
    """Find out where what is in a file."""
    with Survey(open_data(source.path)) as survey:
        file = survey.file
        reached = (
            number for number in range(2, len(file.reached)) if file.reached[number] == REACHED
        )
        pages = {number: page for number in reached if (page := file.page(number))}
        nodes = [number for number, page in pages.items() if parse_page(page).nodes]
        branches = [number for number in nodes if kind_of(pages[number]) == BRANCH]
        lengths: dict[int, list[int]] = {}
        for leaves in survey.leaves.values():
            for leaf in leaves:
                for node in file.nodes(leaf):
                    if len(file.run(node)) == 1:
                        lengths.setdefault(node.length, []).append(node.number)
        trees = []
        for name in survey.trees:
            for leaf in survey.leaves["names"]:
                page = file.page(leaf) or b""
                if (at := page.find(name.encode())) > 0:
                    trees.append(leaf * _PAGE + at + len(name) + _TREE)
    same = [numbers for numbers in lengths.values() if len(numbers) > 1]
    return Layout(list(pages), nodes, branches, same, trees)


Mutation = Callable[[bytearray, random.Random, Layout], None]


def _flip(data: bytearray, dice: random.Random, place: int) -> None:
    data[place] ^= 1 << dice.randrange(8)


def any_bit(data: bytearray, dice: random.Random, _: Layout) -> None:
    """Change a bit anywhere."""
    _flip(data, dice, dice.randrange(len(data)))


def meta(data: bytearray, dice: random.Random, _: Layout) -> None:
    """Change a bit of a meta page."""
    _flip(data, dice, dice.randrange(2) * _PAGE + dice.choice(_META))


def page_head(data: bytearray, dice: random.Random, layout: Layout) -> None:
    """Change a bit in the head of a page."""
    _flip(data, dice, dice.choice(layout.pages) * _PAGE + dice.randrange(PAGE_HEAD.size))


def node(data: bytearray, dice: random.Random, layout: Layout) -> None:
    """Change a bit of a node: of its head, or of its key."""
    page = dice.choice(layout.nodes)
    slots, found = _slots(data, page)
    at = dice.choice(slots)
    key = found.nodes[slots.index(at)].key
    _flip(data, dice, page * _PAGE + at + dice.randrange(NODE_HEAD.size + len(key)))


def root(data: bytearray, dice: random.Random, layout: Layout) -> None:
    """Let a tree begin at another page."""
    places = [slot * _PAGE + at for slot in (0, 1) for at in _ROOTS]
    places += [end - 8 for end in layout.trees]
    data[(at := dice.choice(places)) : at + 8] = dice.choice(layout.pages).to_bytes(8, "little")


def values(data: bytearray, dice: random.Random, layout: Layout) -> None:
    """Exchange the pages of two values of the same length, or write one in both places."""
    first, second = dice.sample(dice.choice(layout.values), 2)
    before, after = (bytes(data[number * _PAGE :][:_PAGE]) for number in (first, second))
    # As two misdirected writes would: each page says the number of the place where it is.
    head = struct.Struct("=Q")
    data[first * _PAGE : (first + 1) * _PAGE] = head.pack(first) + after[8:]
    if dice.random() < 0.5:
        data[second * _PAGE : (second + 1) * _PAGE] = head.pack(second) + before[8:]


def cycle(data: bytearray, dice: random.Random, layout: Layout) -> None:
    """Let a branch lead to itself, or to another page."""
    page = dice.choice(layout.branches)
    slots, _ = _slots(data, page)
    at = page * _PAGE + dice.choice(slots)
    target = page if dice.random() < 0.5 else dice.choice(layout.nodes)
    data[at : at + 6] = target.to_bytes(6, "little")


def _slots(data: bytearray, page: int) -> tuple[list[int], NodePage]:
    own = bytes(data[page * _PAGE :][:_PAGE])
    found = parse_page(own)
    return list(struct.unpack_from(f"={len(found.nodes)}H", own, PAGE_HEAD.size)), found


MUTATIONS: dict[str, Mutation] = {
    "bits": any_bit,
    "meta pages": meta,
    "page heads": page_head,
    "nodes": node,
    "roots": root,
    "values": values,
    "cycles": cycle,
}


def missing() -> str:
    """Return what this torment lacks here."""
    return ""


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Change files, and count what readers notice."""
    sources = [prepare(work, shape, seed) for shape in _SHAPES]
    layouts_of = [layout_of(source) for source in sources]
    dice = random.Random(seed)
    control = _control(work, seed)
    by_kind = {kind: collections.Counter[str]() for kind in MUTATIONS}
    bad: list[str] = []
    misled: list[str] = []
    done = refused = 0
    for number in going(rounds):
        source, layout = sources[number % len(sources)], layouts_of[number % len(sources)]
        kind = list(MUTATIONS)[number // len(sources) % len(MUTATIONS)]
        changed = bytearray(source.whole)
        while changed == source.whole:
            MUTATIONS[kind](changed, dice, layout)
        damage(source, bytes(changed))
        answers = apart(lambda source=source: read(source))  # type: ignore[misc]
        deep = check(source.path)
        damage(source, source.whole)
        wrong = answers.get("wrong", [])
        counts = {
            "files": 1,
            "noticed when opening": "opening" in answers,
            "noticed by a read": bool(answers.get("errors")),
            "reads died": "died" in answers,
            "wrong answers": bool(wrong),
            "wrong answers, and no read raises an error": bool(wrong) and not answers["errors"],
            "noticed by a deep check": bool(deep),
            "harmless": answers == {"errors": [], "wrong": []},
        }
        by_kind[kind].update({name: int(count) for name, count in counts.items()})
        what = f"{number} {source.path.name}, {kind}"
        if wrong:
            misled.append(f"{what}: {', '.join(sorted({name.split()[0] for name in wrong}))}")
        if "bare" in answers:
            bad.append(f"{what}: {answers['bare']}")
        if (wrong or "died" in answers) and not deep:
            bad.append(f"{what}: unreported {answers}"[:500])
        done, refused = done + 1, refused + ("opening" in answers)
    total = sum(by_kind.values(), collections.Counter[str]())
    notes: dict[str, object] = {"in all": dict(total)}
    notes |= {kind: dict(counts) for kind, counts in by_kind.items()}
    notes |= {"wrong answers to": misled, "bad": bad}
    return Figures(done, 0, 0, len(bad), refused, control, notes)


# Known bad


@contextlib.contextmanager
def _unbound() -> Iterator[None]:
    """Let checksums be of the bytes alone, wherever they are."""

    def of_page(data: Any, _: int) -> int:
        return xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF

    def of_texts(value: Any, _: int) -> int:
        return of_page(value[4:], 0)

    def of_record(data: Any, _: int) -> bytes:
        return xxhash.xxh3_64_digest(data)[-4:]

    with (
        mock.patch.object(kernels, "enabled", new=False),  # they compute their own
        mock.patch.object(number_pages, "_digest", of_page),
        mock.patch.object(text_pages, "_checksum", of_texts),
        mock.patch.object(layouts, "_record_checksum", of_record),
    ):
        yield


def _control(work: Path, seed: int) -> str:
    """Exchange values whose checksums don't depend on their place: answers are wrong."""
    dice, wrong = random.Random(seed), 0
    with _unbound():
        (work / "unbound").mkdir()
        source = prepare(work / "unbound", _SHAPES[0], seed)
        layout = layout_of(source)
        for _ in range(_CONTROLS):
            changed = bytearray(source.whole)
            values(changed, dice, layout)
            damage(source, bytes(changed))
            answers = apart(lambda: read(source))
            wrong += bool(answers.get("wrong"))
    if not wrong:
        raise ControlError("values in other places answered rightly without bound checksums")
    return f"with unbound checksums {wrong} of {_CONTROLS} files answered wrongly"
