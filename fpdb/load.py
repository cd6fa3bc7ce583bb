"""Bring other databases, one in its portable form, or ready fingerprints into a database."""

import codecs
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from fpdb.database import Database
from fpdb.documents.catalog import Catalog
from fpdb.documents.layout import new_database, new_header, read_runs
from fpdb.documents.prepare import GATHERED
from fpdb.errors import InputError, RecipeMismatchError
from fpdb.flow import Flow, Ingested
from fpdb.io.arrow import fingerprint_blocks, print_files
from fpdb.io.decoding import FingerprintBlock, PrintSchema
from fpdb.io.files import FORMATS
from fpdb.io.fingerprint_files import (
    ARRAY_SUFFIXES,
    KeyedBlock,
    UnusualError,
    array_blocks,
    array_kind,
    digit_blocks,
)
from fpdb.io.paths import Paths, path_names, size_of
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import (
    SUFFIXES,
    UNWATCHED,
    StreamError,
    Watch,
    check_file,
    chunks,
    named,
    suffix_of,
    unpacked_name,
)
from fpdb.maintenance import portable
from fpdb.maintenance.rebuild import combine, open_sources
from fpdb.models import Document
from fpdb.progress import announce
from fpdb.scratch import remove_abandoned
from fpdb.storage import Environment
from fpdb.storage.block import Block
from fpdb.storage.open_checks import is_vacant
from fpdb.tables.bulk_load import MEMORY

_CHUNK = 1 << 18
# Fields of Parquet files that may be read by columns, if the reading names any.
_NAMES = {None, "key", "fingerprint"}


def load(
    path: str | os.PathLike[str],
    sources: Paths | IO[bytes],
    reading: Reading | None = None,
    *,
    memory: int = MEMORY,
    bad: Literal["drop", "fail"] = "drop",
    on_bad: Callable[[BadRecord], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
    **new: Any,
) -> Ingested:
    """Load other databases, one in its portable form, or ready fingerprints into a database.

    If nothing is at the path, a database is made there. It appears when everything is in it, and
    not at all if the loading fails.

    Of documents of databases with the same key, the newest stays, which is the one that was added
    last: of equally old ones the stored one, or that of the source that comes first. It counts as
    replaced if it came after an older one. With the documents come the deliveries that `dedupe` has
    added to a source. Each source is read in one snapshot. A new database gets the ids in the order
    of the sources, and the tables that suit all their documents.

    Of records, only keys and fingerprints are taken, all in one transaction. If that is the
    fingerprint which is stored with its key, the document stays as it is, with its sketch and
    metadata.

    Args:
        path: The directory of the database.
        sources: One database or several; all must have the same recipe, kind of keys, similarity
            and k. Or one file: what `dump` wrote, records with a key and a fingerprint (JSON lines,
            CSV, TSV, Parquet), or the Parquet file or directory that `fpdb.integrations.spark`
            wrote. Or one array file or several, as in the reference of `fpdb load`: .npy of numpy,
            or .u64, words of which the lowest byte comes first; where they have no keys, these are
            counted on from the highest that is stored, or from 0. Or "-" for standard input, or an
            open binary file, with what `dump` wrote; with a format, "-" may hold records.
        reading: The format, and which fields of records mean what; "key" and "fingerprint".
        memory: About how many bytes to hold, besides LMDB's own half a gigabyte; the rest is sorted
            in a file in the directory of the database.
        bad: "drop" leaves out records that can't be used; "fail" raises InputError at the first.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far.
        new: What `fpdb.create` takes, for a database that isn't there, which has the recipe "none"
            and is of bits unless these or the source say otherwise; a database that is there must
            have been created with the same, except for the capacity.

    Returns:
        How many were read, and what became of them.

    Raises:
        InputError: A source can't be read, or a record may not be bad.
        RecipeMismatchError: The database, or a source, has another recipe, similarity, kind of keys
            or k.
        LockTimeoutError, DiskFullError: As in `Database.add`.
    """
    reading = reading or Reading()
    remove_abandoned(Path(path))  # as the database may be from a load that was killed at its end
    flow = Flow(Ingested(), reading, bad=bad, on_bad=on_bad, on_progress=on_progress)
    run = _Load(flow, path, memory, new)
    if read := getattr(sources, "read", None):
        run.dumped(iter(partial(read, _CHUNK), b""))
        return flow.counts
    names = path_names(cast("Paths", sources))
    if names and all(suffix_of(name) in ARRAY_SUFFIXES for name in names):
        flow.counts.bytes_total = size_of(*names)
        run.arrays(names)
        run.announce_unsketched()
        return flow.counts
    if len(names) != 1:
        run.databases(names)
        return flow.counts
    [source] = names
    flow.counts.bytes_total = size_of(source)
    if _is_portable(source, reading.format):
        with named(source, "copy it again"):
            try:
                run.dumped(chunks(source, Watch(flow.count_bytes)))
            except InputError as error:
                raise InputError(f"{source}: {error}", hint=error.hint) from None
    else:
        check_file(source)
        by_name = not {flow.reading.key_field, flow.reading.fingerprint_field} - _NAMES
        if by_name and (prints := print_files(source)):
            with named(source):
                run.columns(source, *prints)
        elif os.path.isdir(source):
            run.databases(names)
        else:
            run.records(source)
    run.announce_unsketched()
    return flow.counts


def _is_portable(source: str, form: str | None) -> bool:
    """Return whether a source was written by `dump`."""
    if form:
        return form == "portable"
    if source == "-" or unpacked_name(source.lower()).endswith(".fpdb.jsonl"):
        return True
    with contextlib.suppress(StreamError):  # which is explained when it is read
        first = next(chunks(source), b"") if os.path.isfile(source) else b""
        return first.removeprefix(codecs.BOM_UTF8).startswith(portable.BEGINNING)
    return False


def _document(fields: dict[str, Any], catalog: Catalog) -> Document:
    """Return the document of a row; raise InputError if it is none."""
    problem, short = fields.pop("problem", None), fields["fingerprint"] is None
    if fields["key"] is None:
        raise InputError(problem or "found no key")
    if short and not fields.get("digest"):
        raise InputError(problem or "found no fingerprint, and no digest of a short text")
    catalog.check_key(fields["key"])
    return Document(**fields, short=short)


@dataclass
class _Load:
    """Loads a file or databases, and counts the records by their outcomes."""

    flow: Flow[Ingested]
    path: str | os.PathLike[str]
    memory: int
    new: dict[str, Any]
    # Documents without a sketch that came into a database of sketches.
    unsketched: int = 0

    def databases(self, paths: list[str]) -> None:
        """Copy databases into a new one, or add their documents to an existing one."""
        self._require_no_settings()
        for path in paths:
            if path == "-" or os.path.isfile(path):
                raise InputError(
                    f"{path} isn't a database, and only databases are loaded together",
                    hint="load one file at a time",
                )
        if not paths:
            raise InputError("found no source", hint="name a database or a file")
        if is_vacant(self.path):
            counts = self.flow.counts
            stored, counts.read, counts.replaced = combine(
                paths, self.path, self.new.get("capacity"), self.memory
            )
            counts.short, counts.added = stored.short, stored.documents - stored.short
            counts.unchanged = counts.read - stored.documents - counts.replaced
            self.flow.show()
            return
        with (
            Database.open(self.path) as database,
            open_sources(paths, (database.path, database.preparer.header)) as sources,
        ):
            for source in sources:
                documents = source.read(source.view.catalog.documents(source.view.txn))
                while batch := list(islice(documents, GATHERED)):
                    block = Block.of(batch, database.plan.bits)
                    self.flow.counts.count(database.add_prepared(block, newer=True))
                    self.flow.show()
                if runs := list(source.read(read_runs(source.view.txn))):
                    database.runs.add(runs)

    def _require_no_settings(self) -> None:
        if surplus := sorted(self.new.keys() - {"capacity"}):
            raise InputError(
                f"found the {surplus[0]} of a new database, expected no setting but its capacity",
                hint="a database, or its portable form, says how it was created",
            )

    def dumped(self, data: Iterator[bytes]) -> None:
        """Load a database in its portable form; an old one keeps the documents before an error."""
        self._require_no_settings()
        source = portable.PortableFile(data)
        if is_vacant(self.path):
            described = new_header(**{**vars(source.head), **self.new})
            with Environment.build(self.path, *new_database(described)) as environment:
                self._add_dumped(Database(environment), source)
        else:
            with Database.open(self.path) as database:
                self._add_dumped(database, source)

    def _add_dumped(self, database: Database, source: portable.PortableFile) -> None:
        """Add the documents up to the first bad line; then raise its error."""
        source.head.require_fit(portable.Head.of(database.preparer.header), str(self.path))
        for line, batch in source.batches(GATHERED):
            prepared, bad = database.preparer.sift(batch)
            self.flow.counts.count(
                database.add_prepared(prepared[: bad[0][0]] if bad else prepared)
            )
            self.flow.show()
            for place, error in bad:
                raise InputError(f"line {line + place}: {error}", hint=error.hint)

    def columns(self, source: str, files: list[str], schema: PrintSchema) -> None:
        """Add the documents of Parquet files, as `fpdb.integrations.spark` computed them."""
        if is_vacant(self.path):
            self.new.setdefault("similarity", schema.similarity)
            self.new.setdefault("recipe", "web" if schema.recipe_id else "none")
        with self._database(schema.keys) as database:
            if schema.form != "signed":
                self._add_records(database, source, files if schema.form == "unsigned" else [])
                return
            if schema.recipe_id not in (None, database.recipe.id):
                raise RecipeMismatchError(
                    f"{self.path} has the recipe {database.recipe.id}, found fingerprints by the "
                    f"recipe {schema.recipe_id}",
                    hint="load them into a database that is created with that recipe",
                )
            sketched = schema.sketched and database.similarity is not None
            sketched |= schema.keys != database.key_type  # so each row is refused by itself
            remaining, watch = files, Watch(self.flow.count_bytes)
            if not sketched:
                remaining = []
                self._add(database, self._bare_blocks(files, remaining))
                watch = UNWATCHED  # as they were read
            for path in remaining:
                for block in fingerprint_blocks(path, watch, sketched=sketched):
                    self._add_documents(database, path, block)

    def _bare_blocks(self, files: list[str], remaining: list[str]) -> Iterator[KeyedBlock]:
        """Yield the bare fingerprints of files; note which of these have other documents."""
        for path in files:
            is_mixed = False
            for block in fingerprint_blocks(path, Watch(self.flow.count_bytes)):
                is_mixed |= bool(block.documents)
                yield block.keys, block.fingerprints
            if is_mixed:
                remaining.append(path)

    def _add_documents(self, database: Database, source: str, block: FingerprintBlock) -> None:
        """Add the documents of a block that are more than a key and a fingerprint."""
        documents = []
        for fields in block.documents:
            place = f"{source}:{fields.pop('row')}"
            try:
                documents.append(_document(fields, database.preparer.catalog))
            except InputError as error:
                self.flow.refuse(BadRecord(place, str(error), error.hint, fields["key"]))
        self.flow.counts.count(list(database.add_many(documents, transaction=GATHERED)))
        self.flow.show()

    def arrays(self, paths: list[str]) -> None:
        """Add the fingerprints of array files, one after the other."""
        for path in paths:
            check_file(path)
        with named(paths[0]):
            keys, wide = array_kind(paths[0])
        if is_vacant(self.path) and wide:
            self.new.setdefault("recipe", "none-128")
        with self._database(keys) as database:
            self._add(database, self._array_blocks(paths, database.plan.bits))

    def _array_blocks(self, paths: list[str], bits: int) -> Iterator[KeyedBlock]:
        for path in paths:
            with named(path, "write it again"):
                yield from array_blocks(path, bits, Watch(self.flow.count_bytes))

    def records(self, source: str) -> None:
        """Add the keys and fingerprints of records."""
        with self._database("text") as database:
            self._add_records(database, source)

    def _add_records(self, database: Database, source: str, files: Sequence[str] = ()) -> None:
        """Add the keys and fingerprints of records; of a plain table, or of `files`, by columns."""
        flow = self.flow
        if flow.reading.fingerprint_field is None:
            flow.reading = dataclasses.replace(flow.reading, fingerprint_field="fingerprint")
        form = flow.reading.format or SUFFIXES.get(suffix_of(source))
        if form in FORMATS and not FORMATS[form].has_fields:
            raise InputError(
                f"{source} is {form}, expected records with keys and fingerprints",
                hint="a database takes texts by `fpdb ingest`",
            )
        tabular = form in ("csv", "tsv") and source != "-"
        if (files or tabular) and database.key_type == "integer":
            bits, watch = database.plan.bits, Watch(flow.count_bytes)
            try:
                if files:
                    self._add(database, self._whole_blocks(files, bits))
                else:
                    self._add(database, digit_blocks(source, str(form), flow.reading, bits, watch))
            except (UnusualError, StreamError):  # which is explained when it is read
                flow.counts.read = flow.counts.bytes_read = 0
            else:
                return
        prepared = flow.prepared(flow.parts(files or [source]), database.preparer)
        blocks = ((part.documents.keys, part.documents.fingerprints) for part in prepared)
        self._add(database, blocks)

    def _whole_blocks(self, files: Sequence[str], bits: int) -> Iterator[KeyedBlock]:
        """Yield the bare fingerprints of files; raise UnusualError where a row isn't one."""
        largest = np.uint64((1 << min(bits, 64)) - 1)
        for path in files:
            for block in fingerprint_blocks(path, Watch(self.flow.count_bytes)):
                if block.documents or bits > 64 or (block.fingerprints > largest).any():
                    raise UnusualError
                yield block.keys, block.fingerprints

    def _add(self, database: Database, blocks: Iterable[KeyedBlock]) -> None:
        """Add bare fingerprints in one transaction."""
        counts, before, read = self.flow.counts, len(database), 0

        def counted() -> Iterator[KeyedBlock]:
            nonlocal read
            for block in blocks:
                read += len(block[1])
                counts.read += len(block[1])
                self.flow.show()
                yield block

        changed = database.add_fingerprints(counted(), memory=self.memory)
        added = min(max(len(database) - before, 0), changed)
        self.unsketched += changed * (database.similarity is not None)
        counts.added += added
        counts.replaced += changed - added
        counts.unchanged += read - changed
        self.flow.show()

    def announce_unsketched(self) -> None:
        """Say how many fingerprints came into a database of sketches without one."""
        if self.unsketched:
            announce(
                f"{self.unsketched:,} fingerprints came without sketches: the bits (k) find them, "
                "no similarity does"
            )

    @contextlib.contextmanager
    def _database(self, keys: str) -> Iterator[Database]:
        """Open the database, or build one that appears at its path when the block ends."""
        new = self.new
        if is_vacant(self.path):
            wanted: dict[str, Any] = {"keys": keys, "recipe": "none", "similarity": None} | new
            with Database.build(self.path, **wanted) as database:
                yield database
                if 0 < self.flow.counts.read == self.flow.counts.bad:
                    raise InputError(f"no record can be used, so {self.path} isn't created")
            return
        with Database.open(self.path, recipe=new.get("recipe"), k=new.get("k")) as database:
            for name in new.keys() & {"keys", "similarity", "plan"}:
                if new[name] not in (None, stored := getattr(database, name)):
                    raise RecipeMismatchError(
                        f"{self.path} was created with {name}={stored}, found {name}={new[name]}",
                        hint=f"leave {name} out, or create another database",
                    )
            yield database
