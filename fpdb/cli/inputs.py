"""The options for reading files, the same in every command, and the counts of the records."""

import dataclasses
import os
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

import fpdb
from fpdb.cli import render
from fpdb.io.records import BadRecord, Record
from fpdb.progress import WorkStep

if TYPE_CHECKING:
    from fpdb.flow import RecordCounts

_TOO_LARGE = "holds more than "  # so a reason begins that is about the size of a record
_ALIKE, _MOST_KINDS = 3, 30
_RECORDS = "the reasons are above; --format, --encoding and --*-field say how records are read"
# Reasons of one kind differ in numbers, and in the text between the first quote and the last.
_OWN = re.compile(r"['\"].*['\"](?:, …)?|[0-9]+", re.DOTALL)
_SKIPPED = {"status": "with another status than 200", "type": "of another type"}
_OUTCOMES = (
    *("read", "added", "replaced", "unchanged", "duplicates", "kept", "removed"),
    *("short", "bad", "incomplete"),
)
# Texts with tags are no accident from this number on, if they are half of all texts.
_MUCH_MARKUP = 20

Good = TypeVar("Good")


class ProgressLine:
    """Shows on a terminal how far records are, warns of tags, and prints all counts in the end."""

    def __init__(self, unit: str = "document") -> None:
        self.counts: RecordCounts = fpdb.Ingested()
        self._unit = unit
        self._progress = render.StepLine()
        self._warned = render.now.quiet

    def __call__(self, counts: "RecordCounts") -> None:
        """Show the counts so far, and warn once if most texts have tags."""
        self.counts = counts
        if not self._warned and counts.markup >= max(_MUCH_MARKUP, counts.read / 2):
            self._warned = True
            render.warn(
                "most texts have tags, which count as words; --html main takes the main content "
                "of HTML, --html page all of it"
            )
        fields = vars(counts)
        share = counts.bytes_read / counts.bytes_total if counts.bytes_total else None
        removed = f", {fields['removed']:,} removed" if fields.get("removed") else ""
        step = WorkStep(fields.get("stage", ""), counts.read, 0, self._unit)
        self._progress.show(step, fields.get("done", share), removed)

    def summarise(self, more: str = "", *lines: str, listed: bool = False) -> None:
        """Print the counts of all outcomes; not as an object where records were `listed`."""
        counts = self.counts
        fields = vars(counts)
        plain: dict[str, Any] = {
            name: value for name, value in fields.items() if isinstance(value, int | dict)
        }
        plain |= {name: fields[name] for name in ("own_share",) if name in fields}
        if "losses" in fields:
            plain["losses"] = [loss._asdict() for loss in fields["losses"]]
        skipped = fields.get("skipped", {})
        reasons = (
            f"{n:,} {_SKIPPED.get(why, f'of type {why}')}" for why, n in sorted(skipped.items())
        )
        pace = render.pace(counts.read - counts.bad, self._unit, counts.seconds)
        render.summarise(
            None if listed else plain | {"seconds": round(counts.seconds, 3)},
            f"{outcomes(counts)}{more}; {pace}",
            *lines,
            f"records of archives that hold no page: {', '.join(reasons)}" if skipped else "",
            render.counted("texts with tags, which --html main would read", counts.markup),
            about_meta(counts),
            *about_files(counts),
            not_utf8(counts.invalid_utf8, counts.read),
        )


def about_meta(counts: "RecordCounts") -> str:
    """Return a line about documents that lost their metadata, if there are any."""
    lost = getattr(counts, "lost_meta", 0)
    return render.counted("stored metadata removed, which --meta-field gives anew", lost)


def about_files(counts: "RecordCounts") -> list[str]:
    """Return lines about files: their encodings, unless all were UTF-8, and what wasn't read."""
    encodings = (f"{name} {number:,}" for name, number in sorted(counts.encodings.items()))
    return [
        f"files by encoding: {', '.join(encodings)}" if counts.encodings else "",
        render.counted("files that can't be read, or not to their ends", counts.unreadable),
        render.counted("files in directories that aren't text", counts.refused),
    ]


def outcomes(counts: "RecordCounts") -> str:
    named = {name: getattr(counts, name) for name in _OUTCOMES if hasattr(counts, name)}
    return render.listed(named, "removed" if "removed" in named else "duplicates")


class BadRecords:
    """Prints records that can't be used, the first ones of each kind, and counts all of them."""

    def __init__(self) -> None:
        self.count = self.good = self.files = 0
        self._kinds: Counter[str] = Counter()

    def among(self, records: Iterable[Good | BadRecord]) -> Iterator[Good]:
        """Yield and count the good records, and take the bad ones."""
        for record in records:
            if isinstance(record, BadRecord):
                self(record)
            else:
                self.good += 1
                yield record

    def __call__(self, bad: BadRecord) -> None:
        """Take a record that can't be used."""
        self.count += 1
        self.files += bad.is_file
        kind = _OWN.sub("", bad.reason)
        alike = self._kinds[kind]
        if alike > _ALIKE or (not alike and len(self._kinds) == _MOST_KINDS):
            return
        self._kinds[kind] += 1
        reason = render.with_options(bad.reason)
        if alike == _ALIKE:
            render.note(f"further ones like this are only counted: {reason}")
        else:
            render.note(f"{bad.source}: {reason}")

    def settle(self, good: int | None = None, hint: str = _RECORDS) -> None:
        """End the command with exit code 4, or with an error if no record was good."""
        if self.count and (self.good if good is None else good):
            if any(kind.startswith(_TOO_LARGE) for kind in self._kinds):
                render.note("hint: --max-bytes sets how large a record may be")
            raise typer.Exit(render.ExitCode.BAD_RECORDS)
        if self.count:
            what = "file" if self.files == self.count else "record"
            none = f"none of {self.count:,} {what}s can" if self.count > 1 else f"the {what} can't"
            raise fpdb.InputError(f"{none} be used", hint=hint)


def documents_of_files(
    paths: Sequence[str], reading: fpdb.Reading, bad: BadRecords
) -> Iterator[fpdb.Document]:
    """Yield the texts of files under their keys as texts, and take the records that are bad."""
    for record in records_of_files(paths, bad, lambda _: reading):
        yield fpdb.Document(str(record.key), record.text, record.meta)


def require_record(paths: Sequence[str], reading: fpdb.Reading, bad: BadRecords) -> None:
    """Raise InputError if no record of any file can be used; a stream isn't read."""
    from fpdb.io.files import read_sources, sources_of
    from fpdb.io.streams import Watch, ignore

    for path in paths:
        for source in sources_of(path, reading, Watch(tell=ignore)):
            if not source.problem and not (
                source.format.has_fields and os.path.isfile(source.path)
            ):
                return
            if any(isinstance(record, Record) for record in read_sources([source])):
                return
    for path in paths:
        deque(bad.among(read_sources(sources_of(path, reading))), 0)
    bad.settle()


def common_texts(paths: Sequence[str] | None) -> tuple[str, ...]:
    """Return the texts that all were given, of files of any format; raise InputError at a bad one.

    Those of tables and lines are in their usual fields.
    """
    from fpdb.io.files import read_records

    texts: list[str] = []
    for path in paths or ():
        for record in read_records(path, fpdb.Reading(keyed=False)):
            if isinstance(record, BadRecord):
                raise fpdb.InputError(f"{record.source}: {record.reason}", hint=record.hint)
            texts.append(record.text or "")
    return tuple(texts)


def records_of_files(
    paths: Sequence[str], bad: BadRecords, reading_of: Callable[[str], fpdb.Reading]
) -> Iterator[Record]:
    """Yield the good records of all files; the flow takes the bad records."""
    # What reads files takes as long to import as most other things together.
    from fpdb.io.files import read_records
    from fpdb.io.paths import meter_of, path_names
    from fpdb.io.streams import Watch

    names = path_names(paths)
    meter = meter_of("read", names)
    for path in names:
        yield from bad.among(read_records(path, reading_of(path), Watch(meter.add)))


def not_utf8(count: int, records: int) -> str:
    """Return a line about records of which bytes were replaced, or nothing if there are none."""
    if not count:
        return ""
    return (
        f"{count:,} of {render.plural(records, 'record')} had bytes that don't fit their "
        "encodings, and became U+FFFD"
    )


def is_terminal() -> bool:
    """Return whether standard input is a terminal; it may be closed."""
    return sys.stdin is not None and sys.stdin.isatty()


def typed(paths: Sequence[str], reading: fpdb.Reading) -> fpdb.Reading:
    """Say on a terminal that a command waits for typed input; return how it is read: as a text."""
    if list(paths) == ["-"] and is_terminal():
        if not reading.format and not reading.given:
            reading = dataclasses.replace(reading, format="text")
        form = "a text" if reading.format == "text" else reading.format or "jsonl"
        render.note(f"type or paste {form}; Ctrl-D on an empty line ends it")
    return reading
