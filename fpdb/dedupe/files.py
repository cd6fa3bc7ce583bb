"""Files without their near-duplicates.

They are read twice: first all of their records are decided, then the ones that stay are copied.
"""

import contextlib
import dataclasses
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Marks, Places
from fpdb.database import Database
from fpdb.dedupe.cuts import Cuts, counted
from fpdb.dedupe.decide import Decider
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import AHEAD, BAD, Deduplication, Where
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.io import streams
from fpdb.io.annotations import have_numbered_keys, require_free
from fpdb.io.encodings import UTF8
from fpdb.io.files import FORMATS, Source, check_path, parts_of, sources_of
from fpdb.io.paths import Paths, path_names
from fpdb.io.raw import COPIED, Edits, MarkedRows, TableHead, changed, write_rows
from fpdb.io.records import LeftOut, Reading
from fpdb.io.streams import Watch
from fpdb.joins.columns import Room
from fpdb.progress import announce
from fpdb.scratch import Drafts, require_output, scratch_folder
from fpdb.storage.open_checks import disk_named
from fpdb.threads import made_ahead, mapped


class RecordFile(NamedTuple):
    """A file of records, and its folders `name=value`, whose names are columns of its rows."""

    path: str
    folders: tuple[str, ...] = ()


def record_files(paths: Paths, reading: Reading) -> list[RecordFile]:
    """Return files, and those of records in directories; others are announced.

    Folders above a directory say nothing, and above a file they are columns only of Parquet.
    """
    files: list[RecordFile] = []
    for path in path_names(paths):
        if path == "-" or not os.path.isdir(path):
            form = reading.format or streams.SUFFIXES.get(streams.suffix_of(path))
            files.append(RecordFile(path, _partitions(path) if form == "parquet" else ()))
            continue
        left_out, count = LeftOut(), 0
        for file in sources_of(path, reading):
            if file.form in COPIED and not file.problem:
                files.append(RecordFile(file.path, _partitions(file.name)))
                continue
            left_out.add(file.path, file.problem or f"is {file.form}: fpdb ingest reads it")
            count += 1
        if count:
            announce(f"{path}: left out: files without records {count:,}")
            for names, reason in left_out.named():
                announce(f"{names}: {reason}")
    return files


def _partitions(path: str) -> tuple[str, ...]:
    """Return the folders `name=value` in which a file is."""
    *folders, _ = PurePath(path).parts
    while folders and not all("=" in folder for folder in folders):
        del folders[0]
    return tuple(folders)


def _size_of(sources: list[Source]) -> int:
    return sum(os.path.getsize(source.path) for source in sources)


def _state(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


@dataclass
class Corpus:
    """The files of a run: its inputs, its outputs, and a folder beside these."""

    run: Deduplication
    files: list[RecordFile]
    output: Path
    into_folder: bool
    removed: str | None
    # The encodings that were found, by the paths that are read; and the states of files that didn't
    # come through a pipe, which show whether they are changed.
    encodings: dict[str, str] = dataclasses.field(default_factory=dict)
    states: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    def deduplicate(self, where: Where | None) -> None:
        """Write the files without near-duplicates, each whole or not at all."""
        self.run.counts.paths = self.paths
        self._check_targets()
        forms = self._check()
        for folder in self._folders():
            with disk_named(self.output.parent):
                folder.mkdir(exist_ok=True, parents=True)
        beside = self.output / "dedupe" if self.into_folder else self.output
        with disk_named(beside.parent), scratch_folder(Path(os.path.realpath(beside))) as scratch:
            inputs = [
                self._input(path, form, scratch, number)
                for number, (path, form) in enumerate(zip(self.paths, forms, strict=True))
            ]
            headers = self._headers(inputs)
            self._tell_of_partitions(inputs)
            with self.run.opened(where) as database, self.run.room(scratch) as room:
                self._decide_and_write(database, inputs, headers, room)

    def _check(self) -> list[str]:
        """Return the formats of the inputs; raise InputError if they can't be copied."""
        suffix = streams.suffix_of(str(self.output))
        output_form = self.run.reading.format or streams.SUFFIXES.get(suffix)
        if suffix and not output_form and not self.into_folder:
            raise InputError(
                f"{self.output}: found the suffix {suffix!r}, expected that of the input",
                hint="name the format of both",
                parameter="format",
            )
        forms = []
        for path in self.paths:
            if path == "-" and not self.into_folder and output_form:
                form = output_form
            else:
                form = check_path(path, self.run.reading)
            if form not in COPIED:
                raise InputError(
                    f"{path} is {form or 'a directory'}, expected records in files of JSON lines, "
                    "CSV, TSV or Parquet",
                    hint="fpdb ingest reads all formats, and prints the duplicates that it skips"
                    if form
                    else "name the files themselves",
                )
            if not self.into_folder and form != (output_form or form):
                raise InputError(
                    f"{path} is {form}, and {self.output} would be {output_form}",
                    hint="records are copied as they are: give the output the suffix of the input, "
                    "or write several formats into a folder",
                    parameter="output_dir",
                )
            if self.run.annotate and form == "lines":
                raise InputError(
                    f"{path} has lines of text, which have no fields to annotate",
                    hint="make JSON lines of it",
                    parameter="annotate",
                )
            unpacked = streams.unpacked_name(str(self.output))
            if FORMATS[form].by_path and not self.into_folder and unpacked != str(self.output):
                raise InputError(
                    f"{self.output} would be packed, and {form} is packed inside",
                    hint=f"name it {unpacked}",
                )
            forms.append(form)
        return forms

    def _input(self, path: str, form: str, scratch: Path, number: int) -> Source:
        """Return a file that goes by its name of the call; the bytes of a pipe are saved."""
        shown = os.fsencode(path).decode(errors="replace")
        if path == "-" or not stat.S_ISREG(os.stat(path).st_mode):
            with streams.named(shown):
                path = streams.saved(path, str(scratch / f"input-{number}"))
        else:
            self.states[path] = _state(path)
        return Source(path, shown, form, dataclasses.replace(self.run.reading, format=form))

    def _headers(self, inputs: list[Source]) -> list[TableHead]:
        """Read the headers, which files that are written to one must share."""
        headers = [
            TableHead(dataclasses.replace(source, watch=Watch(tell=streams.ignore)))
            for source in inputs
        ]
        first = next((place for place, header in enumerate(headers) if header.line), 0)
        for header, source in zip(headers, inputs, strict=True):
            if self.run.annotate:
                require_free(header.names, source.name)
            if not self.into_folder and not header.fits(headers[first]):
                raise InputError(
                    f"{source.name} has other columns than {inputs[first].name}",
                    hint="write them to files of their own, into a folder",
                )
        if not self.into_folder:
            headers[0] = headers[first]  # of the output; only that of an empty file changes
        return headers

    def _tell_of_partitions(self, inputs: list[Source]) -> None:
        """Say which columns one output has no more, since folders alone have them."""
        lost = {
            folder.partition("=")[0]
            for source, file in zip(inputs, self.files, strict=True)
            if source.form == "parquet" and not self.into_folder
            for folder in file.folders
        }
        if lost:
            names = ", ".join(sorted(lost))
            announce(f"{self.output}: has no columns {names} of folders; output_dir keeps these")

    def _decide_and_write(
        self,
        database: Database | None,
        inputs: list[Source],
        headers: list[TableHead],
        room: Room,
    ) -> None:
        run = self.run
        if database is not None:
            self._require_new_targets(database)
        cuts = counted(run, room, self._blocks(inputs, "counting"))
        with Decider(run, database, room, lined=bool(self.removed)) as decider:
            blocks = self._blocks(inputs, "reading")
            codes = decider.decided(cuts.shortened(blocks) if cuts else blocks)
            ends = np.cumsum([decider.sizes[number] for number in range(len(inputs))])
            lost = cuts.marks & (codes != BAD) if cuts else np.zeros(len(codes), np.bool_)
            sources = self._decoded(inputs, headers)
            divided = partial(_divided, decider, sources, ends, lost=lost)

            def shingles(marks: Marks) -> Iterator[list[Column]]:
                rows = divided(marks, cuts.left if cuts else None)
                return self._shingles(decider.recipe, room.file(), headers, rows)

            decider.settle(codes, shingles)
            keepers, written = run.keepers(codes), run.written(codes)
            decider.require_fit(keepers)
            if run.annotate:
                has_schema = any(header.schema is not None for header in headers)
                numbered = has_schema and have_numbered_keys(
                    decider.annotations(written.nonzero()[0])
                )
                headers = [header.annotated(numbered_keys=numbered) for header in headers]
            with Drafts() as drafts:
                rows = divided(written, cuts.edit if cuts else None, annotated=run.annotate)
                with self._removed(drafts, decider, cuts):
                    self._write(drafts, inputs, headers, rows)
                # The outputs move to their places when this block ends.
                decider.begin()
            if not run.annotate:
                before = _size_of(inputs)
                run.counts.bytes_saved = before - sum(map(os.path.getsize, self._targets()))
            # A file that can't be read to its end has a bad record there.
            decider.finish(np.insert(keepers, ends[sorted(run.damaged)], False))

    def _require_new_targets(self, database: Database) -> None:
        """Raise InputError if an output would be replaced whose records the database has.

        Only the output of a run that didn't finish, which writes it again, has none there.
        """
        if any(not run.finished for run in database.runs.known()):
            return
        for target in self._targets():
            if target.exists():
                raise InputError(
                    f"{target} is there already, and the database may have its records",
                    hint="of the same inputs, keep it: a second run would remove all that the "
                    "database has; for other inputs, name another output",
                )

    def _blocks(self, inputs: list[Source], stage: str) -> Iterator[RecordBlock]:
        """Yield the parts of the files; with several threads, one reads ahead."""
        blocks = self._parts(inputs, stage)
        return blocks if self.run.jobs == 1 else made_ahead(blocks, AHEAD // 2)

    def _parts(self, inputs: list[Source], stage: str) -> Iterator[RecordBlock]:
        """Yield the parts of the files; their bytes show how far the reading is."""
        self.run.expect(_size_of(inputs), stage)
        for number, source in enumerate(inputs):
            name = source.name
            watch = Watch(self.run.progress, partial(self._tell, name))
            for part in parts_of([dataclasses.replace(source, watch=watch)], sys.maxsize):
                yield RecordBlock(part, f"{name}:", name, number)

    def _tell(self, shown: str, path: str, names: Sequence[str]) -> None:
        if not self.encodings.get(path):
            self.encodings[path] = names[0] if len(names) == 1 else UTF8
            self.run.counts.tell(shown, names)

    @contextlib.contextmanager
    def _removed(self, drafts: Drafts, decider: Decider, cuts: Cuts | None) -> Iterator[None]:
        """Write the lines about removed records, and for a block about paragraphs that are cut."""
        if not self.removed or decider.lines is None:
            yield
            return
        with drafts.file(self.removed) as file, streams.packed(file, self.removed) as packed:
            for line in decider.lines.all():
                packed.write(line)
            if cuts:
                cuts.tell = lambda number, lost: packed.write(decider.cut_lines(number, lost))
            yield

    def _write(
        self,
        drafts: Drafts,
        inputs: list[Source],
        headers: list[TableHead],
        parts: list[MarkedRows],
    ) -> None:
        """Write the marked records."""
        run = self.run
        run.expect(_size_of(inputs), "writing")
        together = [parts] if not self.into_folder else [[part] for part in parts]
        for target, header, rows in zip(self._targets(), headers, together, strict=False):
            with disk_named(target.parent), drafts.file(target) as file:
                write_rows(file, str(target), header, rows)
        for source in inputs:
            with contextlib.suppress(OSError):
                if self.states.get(source.path) in (None, _state(source.path)):
                    continue
            raise changed(source.name)

    def _decoded(self, inputs: list[Source], headers: list[TableHead]) -> list[Source]:
        """Return the inputs, to be read again with the encodings and separators that were found."""
        return [
            dataclasses.replace(
                source,
                reading=dataclasses.replace(
                    source.reading,
                    encoding=self.run.reading.encoding or self.encodings.get(source.path, UTF8),
                    delimiter=header.delimiter or None,
                ),
                watch=Watch(self.run.progress),
                problem=self.run.damaged.get(number, ""),
            )
            for number, (source, header) in enumerate(zip(inputs, headers, strict=True))
        ]

    def _shingles(
        self, recipe: Recipe, path: Path, headers: list[TableHead], parts: list[MarkedRows]
    ) -> Iterator[list[Column]]:
        """Yield the shingles of the marked records of files, some at a time.

        Lines are copied to a path, as records that stay are, and read as all are.
        """
        for header, part in zip(headers, parts, strict=True):
            if not part.marks.any():
                continue
            read = dataclasses.replace(
                part.source, watch=Watch(tell=streams.ignore), marked=part.marks
            )
            if part.edits or not read.format.by_path:
                with path.open("wb") as file:
                    write_rows(file, str(path), header, [part._replace(source=read)])
                read = dataclasses.replace(read, path=str(path), problem="", marked=None)
            count = 0
            for _, sets in mapped(
                lambda part: recipe.shingles_many(text or "" for text in part().texts),
                parts_of([read], sys.maxsize),
                self.run.jobs,
            ):
                count += len(sets)
                yield sets
            if count != np.count_nonzero(part.marks):
                raise changed(part.source.name)

    def _targets(self) -> list[Path]:
        if not self.into_folder:
            return [self.output]
        return [
            self.output.joinpath(*file.folders, PurePath(file.path).name) for file in self.files
        ]

    def _folders(self) -> set[Path]:
        """Return the folders that are made for the outputs."""
        return {target.parent for target in self._targets()} if self.into_folder else set()

    def _check_targets(self) -> None:
        """Raise InputError if a file would be written twice, or would replace an input."""
        targets = self._targets()
        if not self.paths:
            raise InputError(
                "found no files of records, expected one, or - for standard input",
                hint="fpdb ingest reads all formats, and prints the duplicates that it skips",
            )
        paths = dict[Path, str]()
        for target, path in zip(targets, self.paths, strict=False):
            if target in paths:
                raise InputError(
                    f"found two inputs of the same name: {paths[target]} and {path}",
                    hint="write them to two folders",
                )
            paths[target] = path
        if self.removed and Path(self.removed).resolve() in {path.resolve() for path in targets}:
            raise InputError(
                f"found {self.removed} for what stays and for what is removed, in one place",
                hint="give them two names",
            )
        for target in [*targets, *([Path(self.removed)] if self.removed else [])]:
            if not target.parent.is_dir() and target.parent not in {self.output, *self._folders()}:
                raise InputError(
                    f"{target} can't be written: there is no folder {target.parent}",
                    hint="create it first, or name another file",
                )
            require_output(target, self.paths)
            if target.exists() and not target.is_file():
                raise InputError(f"{target} is no file", hint="name a file that isn't there yet")


def _divided(
    decider: Decider,
    sources: Sequence[Source],
    ends: Places,
    marks: Marks,
    change: Callable[[int, str], str] | None,
    *,
    lost: Marks,
    annotated: bool = False,
) -> list[MarkedRows]:
    """Return the marked records of each file; a function changes the texts that lose something."""
    columns = decider.numbers, marks, np.arange(len(marks)), lost
    parts = zip(sources, *(np.split(column, ends[:-1]) for column in columns), strict=True)
    return [
        MarkedRows(
            source,
            firsts,
            chosen,
            decider.annotations(numbers[chosen]) if annotated else None,
            Edits(edited, numbers, change) if change and edited.any() else None,
        )
        for source, firsts, chosen, numbers, edited in parts
    ]
