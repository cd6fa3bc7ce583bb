"""Which state of a data file is the newest, by its meta pages and by what they lead to.

LMDB takes the meta page with the higher transaction number, and has no checksum of either. Each
commit of fpdb counts its writes beside the header, so of two states it is known which is newer,
whatever the meta pages say.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fpdb.errors import DamagedError
from fpdb.storage.counters import Counters
from fpdb.storage.datafile import LMDB_FORMAT, LMDB_MAGIC
from fpdb.storage.nodes import LEAF, Node, kind_of, number_of, read_page
from fpdb.storage.rawfile import DATABASE, METAS, NO_PAGE, Database, RawFile, database

_META = struct.Struct("=Q2xH4xIIQQ48s48sQQ")  # the head of the page, and the meta data in it
_META_KIND = 0x08
_PAGE_SIZES = [1 << bits for bits in range(9, 16)]
# Pages that a file may lack at its end: such as were taken and given back, and never written.
_FREE_TAIL = 1 << 20
# More pages the trees of the names and of the header never have, except for a table of weights.
_SMALL = 64


class State(NamedTuple):
    """The database after one transaction; `writes` is what it counted, None if that is damaged."""

    transaction: int
    last_page: int
    free: Database
    main: Database
    sound: bool  # whether LMDB would take its meta page for one
    writes: int | None = None


class Choice(NamedTuple):
    """The newest state, and whether a meta page leads there.

    `faults` says what is wrong with the meta pages, of which LMDB would take `sound` for such. If
    there is a `doubt`, a newer state may be lost. `other` is the state of the other meta page.
    """

    state: State | None
    named: bool
    faults: list[str]
    sound: int
    doubt: bool
    other: State | None = None


def subdatabases(file: RawFile, main: Database) -> dict[str, Database]:
    """Give the trees that a main tree names."""
    return {
        node.key.decode(errors="replace"): database(node.value)
        for node in _entries(file, main.root)
        if len(node.value) == DATABASE.size and not node.big
    }


def entry(file: RawFile, tree: Database | None, key: bytes) -> bytes | None:
    """Give the value of a key of a small tree."""
    for node in _entries(file, tree.root) if tree else ():
        if node.key == key:
            return file.value(node)
    return None


def _entries(file: RawFile, root: int) -> Iterator[Node]:
    """Give the entries of a small tree."""
    pending, seen = [root], set[int]()
    while pending and len(seen) < _SMALL:
        number = pending.pop()
        data = None if number in seen else file.page(number)
        seen.add(number)
        if data:
            page = read_page(data)
            if page.kind == LEAF:
                yield from page.nodes
            else:
                pending += [node.number for node in page.nodes]


def numbers(file: RawFile) -> list[bytes]:
    """Give what tells whether somebody writes: the bytes of both meta pages."""
    file.page_size = _page_size(file)
    return [file.read(slot * file.page_size, _META.size) for slot in range(METAS)]


def choose(file: RawFile, *, search: bool) -> Choice:
    """Find the newest state; where a meta page is lost, `search` the whole file for it."""
    file.page_size = _page_size(file)
    metas = [_meta(file, slot) for slot in range(METAS)]
    known = [_counted(file, state) for state in metas if state]
    sound = [state for state in known if state.sound]
    faults = _compare(known, sound)
    by_lmdb = max(sound, key=lambda state: state.transaction, default=None)
    found = list(_elsewhere(file)) if search and faults else []
    if by_lmdb and (own := _header(file, by_lmdb)):
        # Its uuid tells it from whatever somebody has stored in a long value.
        found = [state for state in found if _header(file, state) == own]
    named = [*known, *(state for state in found if state.sound)]
    newest = max(
        (state for state in named if state.sound),
        key=lambda state: state.transaction,
        default=None,
    )
    for state in named:
        newest = _newer(newest, state)
    if newest is not by_lmdb and by_lmdb:
        faults.append("LMDB would take an older state, since the newest meta page is damaged")
    unnamed = newest
    for state in found:
        unnamed = _newer(unnamed, state)
    # Both meta pages are known, wherever they lie, or a newer one may have been.
    numbers = {state.transaction for state in named if state.sound}
    other = next((state for state in sound if state is not newest), None)
    return Choice(
        unnamed,
        named=unnamed is newest,
        faults=faults,
        sound=len(sound),
        doubt=bool(faults) and len(numbers) < METAS,
        other=other,
    )


def _newer(state: State | None, other: State) -> State | None:
    """Give the other state if it is surely the newer one."""
    if other.writes is None:
        return state
    if state is None or (state.writes is not None and state.writes < other.writes):
        return other
    return state


def _compare(known: list[State], sound: list[State]) -> list[str]:
    if len(sound) < METAS:
        return ["a meta page is damaged"]
    first, second = (state.transaction for state in sound)
    # One transaction follows the other; in a copy that took a while, some may lie between.
    unknown = any(state.writes is None for state in known)
    if first == second != 0 or (abs(first - second) > 1 and unknown):
        return [f"the meta pages are those of the transactions {first} and {second}"]
    return []


def _page_size(file: RawFile) -> int:
    for offset in (0, *_PAGE_SIZES):
        data = file.read(offset, _META.size)
        if len(data) == _META.size and _META.unpack(data)[2] == LMDB_MAGIC:
            size = database(_META.unpack(data)[6]).page_size
            if size in _PAGE_SIZES and offset in {0, size}:
                return size
    return 4096


def _meta(file: RawFile, place: int) -> State | None:
    data = file.read(place * file.page_size, _META.size)
    if len(data) < _META.size:
        return None
    _, kind, magic, version, _, _, free, main, last_page, transaction = _META.unpack(data)
    sound = (
        magic == LMDB_MAGIC
        and version == LMDB_FORMAT
        and bool(kind & _META_KIND)
        and database(free).page_size == file.page_size
    )
    if not METAS <= last_page < file.pages + _FREE_TAIL:
        last_page = file.pages - 1
    return State(transaction, last_page, database(free), database(main), sound)


def _header(file: RawFile, state: State) -> bytes | None:
    return entry(file, subdatabases(file, state.main).get("header"), b"header")


def _counted(file: RawFile, state: State) -> State:
    """Read how many writes a state has counted."""
    header = subdatabases(file, state.main).get("header")
    try:
        return state._replace(writes=Counters.unpack(entry(file, header, b"counters")).writes)
    except DamagedError:
        return state


def _elsewhere(file: RawFile) -> Iterator[State]:
    """Find main trees in the whole file, whether or not a meta page names them, and these."""
    free = Database(file.page_size, 0, 0, 0, 0, 0, 0, NO_PAGE)
    for number in range(METAS, file.pages):
        state = _meta(file, number)
        if state and state.sound and number_of(file.at(number) or b"") < METAS:
            yield _counted(file, state)
            continue
        data = file.page(number)
        if data is None or kind_of(data) != LEAF:
            continue
        page = read_page(data)
        names = {node.key for node in page.nodes if len(node.value) == DATABASE.size}
        if page.sound and {b"documents", b"header"} <= names:
            main = Database(0, 0, 1, 0, 1, 0, len(names), number)
            yield _counted(file, State(0, file.pages - 1, free, main, sound=False))
