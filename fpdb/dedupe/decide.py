"""Which records are removed: each is kept, unless it resembles one that is."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice, repeat
from typing import Any, Self

import numpy as np
import xxhash

from fpdb.arrays import Column, Marks, Places, among, unique
from fpdb.database import Database
from fpdb.dedupe.lines import RemovedLines, cut_line
from fpdb.dedupe.prepare import NUMBER, RecordBlock, RecordColumns, unpack_key
from fpdb.dedupe.run import (
    BAD,
    KEPT,
    OPEN,
    REMOVED,
    SHORT,
    Codes,
    Deduplication,
    Removed,
    SourceLoss,
    require_next,
)
from fpdb.dedupe.stored import StoredDocuments
from fpdb.documents.lookup import Search
from fpdb.documents.prepare import GATHERED
from fpdb.documents.runs import Addition, Find
from fpdb.documents.similarity import Shares, equal_texts
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.io.annotations import FIELDS, Annotation
from fpdb.io.batches import RecordBatch
from fpdb.joins.columns import GrowingColumn, GrowingStrings, GrowingTexts, Room
from fpdb.joins.rules import Rule, own_shares
from fpdb.joins.selection import Chosen, Selection
from fpdb.joins.shingle_sets import ShingleSets
from fpdb.models import PASSAGES, Key, Match, now
from fpdb.storage.block import Block
from fpdb.storage.format import Stored, StoredRun
from fpdb.storage.origin import fields_of, origin_of, pack_origin, pack_origins
from fpdb.threads import made_ahead

# Characters of the texts that are decided together: records in memory wait until they are.
_CHARACTERS = 1 << 26
# Records that are decided together at most, since a part of them searches most of the kept ones,
# or reads most of the pages of a database.
TOGETHER = 1 << 18
# Records that are packed for a database at once, and how many times as many before their
# transaction.
STORED = 1 << 14
_PACKED = 1 << 6


class Decider:
    """What becomes of the records of one run, compared with a database and with each other."""

    def __init__(
        self,
        run: Deduplication,
        database: Database | None,
        room: Room,
        *,
        lined: bool = False,
        read_once: bool = False,
    ) -> None:
        """Begin; for annotations, or if wanted, there is a line about each record that is removed.

        The shingles of records that are read once are held from the beginning, while those of
        others are asked for once it is known whose are needed.
        """
        self._run, self._database, self._room = run, database, room
        self.lines = RemovedLines(room) if lined or run.annotate else None
        self._told = self.lines is not None or run.on_removed is not None
        self._preparer = run.preparer(database)
        index = self._preparer.index
        similarity = run.least_similarity(self._preparer)
        self._bits = index.plan.bits
        self._texts = GrowingTexts(room, self._bits)
        search = Search(index.plan.k, None, similarity)
        self._stored: StoredDocuments | None = None
        if database is not None:
            self._stored = StoredDocuments(database, run, similarity, self._preparer.recipe, room)
        self._shingles = GrowingColumn(room, np.int32)  # how many distinct ones
        self._sets = ShingleSets(room) if read_once and search.similarity else None
        self._groups = GrowingColumn(room, np.uint64, searched=True)
        rule = Rule(None if run.within is None else self._groups, run.lose, self._shingles)
        self._selection = Selection(index, search, self._texts, room, self._sets, rule=rule)
        self._is_bad = GrowingColumn(room, np.bool_)
        self._numbers = GrowingColumn(room, np.int64)
        self._values = GrowingColumn(room, np.float64)
        self._characters = GrowingColumn(room, np.int64)
        # Of all removed records that resemble another one.
        self._all_shingles = self._own_shingles = 0
        self._keys = GrowingStrings(room)
        self._passages = GrowingStrings(room)
        # Of each record, the number of a document of the database that it resembles.
        self._matched = GrowingColumn(room, np.int64)
        self._matches = GrowingStrings(room)
        self._sources = GrowingColumn(room, np.int64)
        self._named: dict[str, int] = {}  # sources, and their numbers
        self._shown: list[str] = []  # how the places of records begin,
        self._firsts: list[int] = []  # from these ones on
        self.sizes: Counter[int] = Counter()  # of the inputs, in records
        # Records whose text the database has, and records that replace a document if they stay.
        self._copied: list[int] = []
        self._replacing: dict[int, tuple[Key, int]] = {}
        self._since = 0 if database is None else database.runs.next_id()
        self._content = 0
        self._ending = ExitStack()
        self._packed: Iterator[tuple[Places, Block]] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @property
    def recipe(self) -> Recipe:
        return self._preparer.adapted(self._run.reading.max_bytes).recipe

    @property
    def numbers(self) -> Places:
        """The numbers of the lines or rows of all records."""
        return self._numbers.values

    def decided(self, blocks: Iterable[RecordBlock]) -> Codes:
        """Return the codes of all records."""
        parts = [codes for _, codes in self.decisions(blocks)]
        return np.concatenate([np.empty(0, np.uint8), *parts])

    def decisions(self, blocks: Iterable[RecordBlock]) -> Iterator[tuple[list[RecordBlock], Codes]]:
        """Yield blocks without their parts, with the codes of their records.

        Unless the first of similar records stays, all are read before any is decided.
        """
        decided = 0
        if self._run.keep == "first":
            for read in self._read(blocks):
                yield read, self._decide(np.arange(decided, len(self._texts)))
                decided = len(self._texts)
            return
        every = [block for read in self._read(blocks) for block in read]
        counts, preferred = self._run.counts, self._values.values
        if every:
            self._run.preference.check(preferred[~self._is_bad.values])
        codes = np.empty(len(preferred), np.uint8)
        order = self._ordered(np.arange(len(preferred)))
        counts.stage, counts.done = "comparing", 0.0
        end = 0
        while end < len(order):
            numbers = order[end : end + _together(end)]
            codes[numbers] = self._decide(numbers)
            end += len(numbers)
            counts.done = end / len(order)
            self._run.show()
        yield every, codes

    def _ordered(self, numbers: Places) -> Places:
        """Return numbers of records in the order in which they are decided."""
        if self._run.keep == "first":
            return numbers
        return numbers[(-self._values.values[numbers]).argsort(kind="stable")]

    def settle(self, codes: Codes, shingles: Callable[[Marks], Iterable[Sequence[Column]]]) -> None:
        """Decide by their shingles about the records whose sketches leave it open.

        These come in the order of the records that are marked, some at a time.
        """
        marks = self._selection.doubtful
        [numbers] = marks.nonzero()
        if not len(numbers):
            return
        counts, sets = self._run.counts, ShingleSets(self._room)
        counts.stage, counts.done = "comparing", 0.0
        for batch in shingles(marks):
            sets.add(numbers[len(sets) : len(sets) + len(batch)], batch)
            counts.done = len(sets) / len(numbers)
            self._run.show()
        order = self._ordered(numbers)
        are_stored = self._matched.values[order] >= 0
        key_of = self._key if self._told else None
        for part, choice in self._selection.decide_again(order, are_stored, sets, key_of):
            [left] = (codes[part] == OPEN).nonzero()
            choice = Chosen(*(column[left] for column in choice))  # noqa: PLW2901
            codes[part[left]] = self._coded(part[left], choice)

    def _read(self, blocks: Iterable[RecordBlock]) -> Iterator[list[RecordBlock]]:
        """Yield blocks that are decided together, once they are looked up in the database."""
        read: list[RecordBlock] = []
        characters = 0
        stored = self._database is not None
        keyed = stored or self._told
        prepared = self._run.prepared(
            self._preparer, blocks, keyed=keyed, stored=stored, shingled=self._sets is not None
        )
        # Until the texts of some are compared.
        held = self._run.texts is not None
        for block, columns in prepared:
            left = block if held else block._replace(read=RecordBatch)  # without its records
            read.append(left._replace(first=len(self._texts)))
            self._add(block, columns)
            characters += int(columns.documents.characters.sum()) * (held or bool(block.records))
            waiting = len(self._texts) - len(self._matched)
            together = TOGETHER if stored else _together(len(self._matched))
            if waiting >= together or characters >= _CHARACTERS:
                yield self._look_up(read)
                read, characters = [], 0
        if read:
            yield self._look_up(read)
        self._run.require_values(self._groups.values, self._named)

    def _add(self, block: RecordBlock, columns: RecordColumns) -> None:
        if not self._shown or self._shown[-1] != block.shown:
            self._shown.append(block.shown)
            self._firsts.append(len(self._texts))
        documents, count = columns.documents, len(columns.documents)
        if self._sets is not None:
            numbers = np.arange(len(self._texts), len(self._texts) + count)
            self._sets.add(numbers, columns.shingles)
        self._texts.add(documents)
        if self.lines is not None:
            self.lines.expect(count)
        self.sizes[block.number] += count
        self._is_bad.add(columns.is_bad)
        self._numbers.add(columns.numbers)
        self._values.add(columns.values)
        self._characters.add(documents.characters)
        self._shingles.add(columns.counts)
        self._groups.add(columns.groups)
        self._keys.add(columns.keys)
        self._passages.add(documents.further.get(PASSAGES, []))
        named = [self._named.setdefault(name, len(self._named)) for name in columns.named]
        self._sources.add(np.array(named, np.int64)[columns.sources])
        self._content += columns.content

    def _look_up(self, blocks: list[RecordBlock]) -> list[RecordBlock]:
        """Look records up in the database, and return their blocks without the records."""
        start = len(self._matched)
        matched = np.full(len(self._texts) - start, -1)
        if self._database is not None and self._stored is not None:
            good, entries = ~self._is_bad.values[start:], list[bytes]()
            nearest, equal, asked = self._stored.resembled(
                *(self._texts.all[start:], good, self._shingles.values[start:], blocks),
                lambda places: self._questions(start + places),
            )
            before = len(self._copied)
            self._copied += [start + place for place in equal]
            queried = {place: nearest[place].match for place in asked if place in nearest}
            # Keys that are looked up together share the pages that have them.
            for first in range(0, len(good), GATHERED):
                places = first + good[first : first + GATHERED].nonzero()[0]
                matches = {place: queried.get(place) for place in places.tolist()}
                for place in self._replacing_of(self._database, start, matches, equal):
                    nearest.pop(place, None)
            copies = set(self._copied[before:])  # while equal sketches don't show equal texts
            for place, stored in nearest.items():
                if start + place in copies:
                    stored = stored._replace(own_share=0.0)  # noqa: PLW2901
                elif self._run.lose is not None and stored.own_share is None:
                    continue  # since no text shows the loss
                matched[place] = len(self._matches) + len(entries)
                estimated = self._stored.is_estimated(stored)
                self._run.counts.estimated += estimated
                match, own_share = stored
                shown = *self._named_document(match), match.similarity, match.distance
                entries.append(json.dumps([match.key, *shown, estimated, own_share]).encode())
            self._matches.add(entries)
        self._matched.add(matched)
        return [block._replace(read=RecordBatch) for block in blocks]

    def _named_document(self, match: Match) -> tuple[Key, str | None]:
        """Return the key and the source of a document; for annotations, of its group's keeper."""
        group = match.group if self._run.annotate else None
        keeper = self._database.get(group) if self._database and group is not None else None
        # Unless the keeper goes just now.
        return origin_of((keeper or match).key, (keeper or match).meta)

    def _replacing_of(
        self, database: Database, start: int, matches: dict[int, Match | None], copies: set[int]
    ) -> Iterator[int]:
        """Yield the places of records that replace the documents of their keys, and so stay.

        Records are compared with these, and with the matches of the queried ones. A copy of any
        document replaces none; `copies` are the known ones.
        """
        places = np.array(list(matches), np.int64)
        keys = [key[1:].decode() for key in self._keys.chosen(start + places)]
        named = {*keys, *(match.key for match in matches.values() if match)} - {""}
        stored = database.runs.stored(list(named))
        if not any(stored.values()):  # as in most first deliveries
            return
        documents = {
            place: (stored.get(key), stored.get(match.key) if match else None)
            for (place, match), key in zip(matches.items(), keys, strict=True)
        }
        self._run.counts.delivered += sum(old is not None for old, _ in documents.values())
        compared = [place for place, pair in documents.items() if any(pair) and place not in copies]
        questions = self._questions(start + np.array(compared, np.int64))
        for place, question in zip(compared, questions.rows(), strict=True):
            old, _ = documents[place]
            texts = [(one.digest, one.fingerprint) for one in documents[place] if one]
            if (question.digest, question.fingerprint) in texts:
                self._copied.append(start + place)
            elif old and self._run.replaces and self._is_newer(start + place, old):
                self._replacing[start + place] = old.key, _version(old)
                yield place

    def _is_newer(self, number: int, old: Stored) -> bool:
        """Return whether a record is newer than a document, unless any may be replaced."""
        field, fields = self._run.preference.dated, fields_of(old.meta)
        if field and field not in fields:
            raise InputError(
                f"the database has no {field!r} of {old.key!r}, which comes with another text, so "
                "nothing shows which is newer",
                hint="keep what is stored; or replace it, and keep the first or longest record",
                parameter="same_key",
            )
        older = self._run.preference.value(fields[field]) if field else -np.inf
        return bool(self._values.values[number] > older)

    def _decide(self, numbers: Places) -> Codes:
        """Return the codes of records in this order, given their numbers."""
        are_stored = self._matched.values[numbers] >= 0
        choice = self._selection.choose(numbers, are_stored, self._key if self._told else None)
        return self._coded(numbers, choice)

    def _coded(self, numbers: Places, choice: Chosen) -> Codes:
        """Return the codes of records; count and tell all that aren't open."""
        codes = np.where(
            choice.keepers, np.where(self._texts.all.short[numbers], SHORT, KEPT), REMOVED
        )
        codes[self._is_bad.values[numbers]] = BAD
        codes[choice.is_open] = OPEN
        counts = self._run.counts
        counts.removed += int(np.count_nonzero(codes == REMOVED))
        counts.short += int(np.count_nonzero(codes == SHORT))
        counts.incomplete += int(np.count_nonzero(choice.crowded & (codes == KEPT)))
        own_shares, matched = self._own_shares(numbers, choice), self._matched.values[numbers]
        counted = (codes == REMOVED) & (matched < 0) & ~np.isnan(own_shares)
        shingles = self._shingles.values[numbers[counted]]
        self._all_shingles += int(shingles.sum())
        self._own_shingles += int(np.rint(shingles * own_shares[counted]).sum())
        if self._all_shingles:
            counts.own_share = self._own_shingles / self._all_shingles
        if self._told:
            self._tell(numbers, codes == REMOVED, choice, own_shares)
        self._run.show()
        return codes.astype(np.uint8)

    def _own_shares(self, numbers: Places, choice: Chosen) -> Shares:
        """Return which share of their shingles the nearest kept records lack; nan if unknown."""
        shares, side = np.full(len(numbers), np.nan), self._texts.all
        [places] = (choice.nearest >= 0).nonzero()
        first, second, sizes = numbers[places], choice.nearest[places], self._shingles.values
        shares[places] = own_shares(choice.shares[places], sizes[first], sizes[second])
        shares[places[equal_texts(side, first, side, second)]] = 0.0
        return shares

    def _tell(self, numbers: Places, removed: Marks, choice: Chosen, own_shares: Shares) -> None:
        """Tell each removed record with the kept one that it resembles most."""
        matched = self._matched.values[numbers]
        for place in removed.nonzero()[0].tolist():
            nearest: list[list[Any]] = []
            if (keeper := int(choice.nearest[place])) >= 0:
                shown = self._key(keeper), self._shown_key(keeper), self._place(keeper)
                similarity, own_share = (
                    None if np.isnan(share) else float(share)
                    for share in (choice.shares[place], own_shares[place])
                )
                distance = int(choice.distances[place])
                nearest.append([*shown, similarity, distance, False, own_share])
            if matched[place] >= 0:
                nearest.append(json.loads(self._matches[int(matched[place])]))
            _, *match = min(nearest, key=lambda row: (-(row[3] or 0.0), row[4], row[0]))
            number = int(numbers[place])
            told = Removed(self._shown_key(number), self._place(number), *match)
            if self.lines is not None:
                self.lines.add(number, told)
            if self._run.on_removed:
                self._run.on_removed(told)

    def cut_lines(self, number: int, lost: Iterable[tuple[int, int]]) -> bytes:
        """Return a line about each paragraph that a record lost: who keeps it, its characters."""
        record = self._shown_key(number), self._place(number)
        return b"".join(
            cut_line(*record, self._shown_key(keeper), self._place(keeper), size)
            for keeper, size in lost
        )

    def annotations(self, numbers: Places) -> Iterator[Annotation]:
        """Yield which record stays in the place of each record, itself unless it is removed."""
        for start in range(0, len(numbers), GATHERED):
            part = numbers[start : start + GATHERED]
            lines = self.lines.chosen(part) if self.lines is not None else repeat(None, len(part))
            columns = lines, self._keys.chosen(part), self._places(part)
            for line, packed, place in zip(*columns, strict=True):
                if line is None:
                    key = unpack_key(packed)
                    yield Annotation(place if key is None else key)
                else:
                    told = json.loads(line)
                    yield Annotation(*(told[name] for name in FIELDS))

    def _place(self, number: int) -> str:
        return self._places(np.array([number]))[0]

    def _places(self, numbers: Places) -> list[str]:
        """Return where records were read."""
        sources = np.searchsorted(self._firsts, numbers, "right") - 1
        lines = self._numbers.values[numbers].tolist()
        return [f"{self._shown[source]}{line}" for source, line in zip(sources, lines, strict=True)]

    def _shown_key(self, number: int) -> Key:
        """Return the key of a record as it was read, or its place if it has none."""
        key = unpack_key(self._keys[number])
        return self._place(number) if key is None else key

    def _key(self, number: int) -> str:
        return str(self._shown_key(number))

    # With a database

    def require_fit(self, marks: Marks) -> None:
        """Raise InputError if the survivors mustn't be written, given all marks.

        That is if a source loses too much, or the database has these records already, or awaits
        another run. Else a thread begins to pack the kept ones, while the outputs are written.
        """
        sources, count = self._sources.values, len(self._named)
        every = np.bincount(sources, minlength=count).tolist()
        gone = np.bincount(sources[~marks], minlength=count).tolist()
        self._run.weigh(list(map(SourceLoss, self._named, every, gone)))
        if self._database is None:
            return
        require_next(self._database, self._stored_run())
        keepers = self._selection.keepers
        keepers = keepers[~self._is_bad.values[keepers]]
        parts = (keepers[start : start + STORED] for start in range(0, len(keepers), STORED))
        self._packed = ((part, self._new(part)) for part in parts)
        if self._run.jobs != 1:
            ahead = self._ending.enter_context(closing(made_ahead(self._packed, _PACKED)))
            first = list(islice(ahead, 1))  # which begins
            self._packed = chain(first, ahead)

    def begin(self) -> None:
        """Store in the database that the outputs are about to come to their places."""
        if self._database is not None:
            self._database.runs.begin(self._stored_run())

    def finish(self, marks: Marks) -> None:
        """Count the records that stay, given all marks; at last, add them to the database."""
        self._run.counts.copies = self._copies()
        self._run.finish(marks)
        if self._database is not None:
            self._database.runs.finish(self._stored_run(), self._since, self._addition)

    def _addition(self, later: Iterable[list[Stored]], find: Find) -> Addition:
        """Return the keys that go and the documents that come, given those added meanwhile.

        A document that was replaced meanwhile isn't replaced again.
        """
        similar = [
            self._selection.resembling(Block.of(documents, self._bits)) for documents in later
        ]
        late = np.concatenate([np.empty(0, np.int64), *similar])
        replacing = np.intersect1d(
            np.array(list(self._replacing), np.int64), np.setdiff1d(self._selection.keepers, late)
        ).tolist()
        versions = {number: self._replacing[number] for number in replacing}
        stored = find([key for key, _ in versions.values()])
        changed = [
            number
            for number, (key, version) in versions.items()
            if (now_there := stored[key]) and _version(now_there) != version
        ]
        late = unique(np.append(late, np.array(changed, np.int64)))
        keys = {key for key, _ in versions.values()} - {versions[number][0] for number in changed}
        self._run.counts.meanwhile, self._run.counts.replaced = len(late), len(keys)
        return keys, self._without(late)

    def _without(self, late: Places) -> Iterator[Block]:
        for numbers, documents in self._packed:
            [places] = (~among(numbers, late)).nonzero()
            yield documents if len(places) == len(numbers) else documents[places]

    def _copies(self) -> int:
        """Count the removed records that have the text of another one."""
        removed = np.ones(len(self._texts), np.bool_)
        removed[self._selection.keepers] = False
        removed[self._copied] = False
        digests = self._texts.all.digests[:, 0]
        removed &= digests != 0
        if len(self._groups):
            digests = digests ^ self._groups.values
        gone = digests[removed]
        first = ~among(unique(gone), unique(digests[self._selection.keepers]))
        # Of equal records that all go, one resembles a kept one that differs.
        return len(self._copied) + len(gone) - int(np.count_nonzero(first))

    def _stored_run(self) -> StoredRun:
        count = np.count_nonzero(~self._is_bad.values)
        records = f"{count} {self._content % (1 << 128):x}"
        content = xxhash.xxh3_128_digest(records.encode())
        command = self._run.command.encode(errors="replace").decode()
        return StoredRun(content, self._run.options(), now(), finished=False, command=command)

    def _questions(self, numbers: Places) -> Block:
        """Return records as documents that are looked up."""
        return self._block(numbers, [""] * len(numbers), [b""] * len(numbers))

    def _new(self, numbers: Places) -> Block:
        """Return records as the database adds them."""
        places = [place.encode() for place in self._places(numbers)]
        packed = self._keys.chosen(numbers)
        # For the database, the key is a text.
        keys = [(key[1:] or place).decode() for key, place in zip(packed, places, strict=True)]
        metas = pack_origins(places)
        number, field = NUMBER.encode(), self._run.preference.dated
        for at, key in enumerate(packed):
            if field or key[:1] == number:
                value = float(self._values.values[numbers[at]])
                newest = {field: value if np.isfinite(value) else None} if field else None
                numbered = unpack_key(key) if key[:1] == number else None
                metas[at] = pack_origin(places[at].decode(), numbered, newest)
        return self._preparer.catalog.packed(self._block(numbers, keys, metas))

    def _block(self, numbers: Places, keys: Sequence[Key], metas: Sequence[bytes]) -> Block:
        texts = self._texts.all[numbers]
        further: dict[str, Sequence[bytes]] = {}
        if self._preparer.catalog.passaged:
            passages = self._passages.column.chosen(numbers)
            further[PASSAGES] = passages.only(~texts.short).listed()
        return Block(
            ids=np.zeros(len(numbers), np.uint64),
            keys=keys,
            fingerprints=texts.fingerprints,
            short=texts.short,
            added=np.full(len(numbers), now()),
            digests=texts.digests,
            metas=metas,
            characters=self._characters.values[numbers],
            sketches=texts.sketches,
            further=further,
        )


def _together(decided: int) -> int:
    """Return how many records are decided together, after N were."""
    return max(GATHERED, min(TOGETHER, decided // 8))


def _version(document: Stored) -> int:
    """Return a number that another text or time of adding would change."""
    return hash((document.added, document.digest, document.fingerprint))
