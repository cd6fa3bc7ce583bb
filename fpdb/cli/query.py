"""Find the stored documents near others."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.inputs import BadRecords, common_texts, not_utf8, records_of_files, typed
from fpdb.cli.options import option, require, takes
from fpdb.cli.output import Output, likeness, near_dict, title_in, typed_columns
from fpdb.fingerprint.digits import Base
from fpdb.io.records import BadRecord
from fpdb.models import Asked, Key, Matches, PartMatches, equal_percent

_COLUMNS = {
    "query": "string",
    "key": "key",
    "distance": "int32",
    "similarity": "double",
    "complete": "bool",
}
_NEAREST = {"percent" if name == "similarity" else name: kind for name, kind in _COLUMNS.items()}
_PARTS = {
    "query": "string",
    "key": "key",
    "words": "int64",
    "share": "double",
    "other_share": "double",
    "complete": "bool",
}
# The name of a query, its matches, whether its text is short, and whether bytes were replaced.
_QueryResult = tuple[Key, Matches | PartMatches, bool, bool]
_Show = Callable[..., None]
_COUNTS = ("queries", "with a match", "matches", "incomplete")


@takes(
    "key_field text_field fingerprint_field base format encoding html max_bytes output",
    reading=fpdb.Reading,
    target=Output,
    limit=option("--limit -n N", "At most N matches of each.", min=1),
    nearest=option("--nearest N", "The N nearest in bits, at any distance.", min=1),
    passages=option("--passages", "Find documents by their passages."),
    exit_code=option("--exit-code", "Exit with 1 if nothing matched, as grep.", rare=True),
)
def query(
    path: Path,
    reading: fpdb.Reading,
    target: Output,
    files: list[str] | None = None,
    texts: list[str] | None = None,
    fingerprints: list[str] | None = None,
    similarity: float | None = None,
    k: int | None = None,
    limit: int | None = None,
    nearest: int | None = None,
    passages: bool = False,
    least: float | None = None,
    common: list[str] | None = None,
    exit_code: bool = False,
    recipe: fpdb.Recipe | None = None,
    jobs: int = 0,
    since: float | None = None,
    until: float | None = None,
) -> None:
    """Find stored documents like these.

    Example:
      fpdb query crawl.fpdb pages.jsonl --similarity 0.9 --limit 1

    Prints the query, the key of a match, and their similarity, or distance in
    bits; with --nearest also the share of equal bits; with --passages the words
    in common, and their share of either; and the group of the match.
    """
    require(passages or least is None, "--least needs --passages")
    require(passages or not common, "--common needs --passages")
    require(not nearest or (k is None and limit is None), "--nearest N takes N at any distance")
    bits = k is not None or bool(fingerprints or nearest)
    require(not passages or not (bits or similarity), "--passages compares texts")
    require(similarity is None or not (fingerprints or nearest), "--similarity compares texts")
    paths = files or ([] if texts or fingerprints else ["-"])
    bad = BadRecords()
    with fpdb.open(path, readonly=True, recipe=recipe) as database:
        if nearest:
            k, limit = database.plan.bits, nearest
        times: dict[str, Any] = {"added_since": since, "added_before": until}
        near: dict[str, Any] = {"k": k, "limit": limit, "similarity": similarity, **times}
        reading = typed(paths, reading)
        if passages:
            columns, shown = _PARTS, tuple(_PARTS)[:5]
            show: _Show = _show_parts
            asked: dict[str, Any] = {"least": least or 0.0, "common": common_texts(common)}
            find: Callable[[str], PartMatches] = partial(
                database.passages, limit=limit, **asked, **times
            )
            find("")  # which raises an error at once
            answers: Iterator[_QueryResult] = _ask_parts(texts or (), paths, reading, bad, find)
        else:
            of_bits = k is not None or (similarity or database.similarity) is None
            columns, shown, show = _printed(of_bits, database.plan.bits if nearest else None)
            by_bits = {name: value for name, value in near.items() if name != "similarity"}
            prints = _ask_fingerprints(database, fingerprints or (), reading.base, by_bits)
            answers = chain(_ask_texts(database, texts or (), near), prints)
            if paths:  # the reader of files takes long to import
                file_answers = fpdb.query_files(
                    database, paths, reading, **near, jobs=jobs, on_bad=bad
                )
                answers = chain(answers, file_answers)
            else:
                database.warn_of_shortfall(similarity)
        if database.has_groups and not passages:
            columns, shown = columns | {"group": "key"}, (*shown, "group")
        columns = typed_columns(columns, database)
        with target.opened(columns, shown, inputs=paths, title=True):
            # That a database finds too little is said already.
            said = bool(passages or database.shortfall(similarity))
            counts = _print_each(answers, partial(show, target=target), said=said)
            if not counts["queries"]:
                bad.settle(0)  # an error, before the file takes the place of an older one
    _end(counts, bad, exit_code, f"; {render.pace(counts['queries'], 'query')}" if paths else None)


def _printed(of_bits: bool, bits: int | None) -> tuple[dict[str, str], tuple[str, ...], _Show]:
    """Return the columns of answers, those that are shown, and what prints an answer.

    The nearest documents are printed with how many of the `bits` are equal.
    """
    show = partial(_show, of_bits=of_bits, bits=bits)
    if bits is not None:
        return _NEAREST, tuple(_NEAREST)[:4], show
    return _COLUMNS, ("query", "key", "distance" if of_bits else "similarity"), show


def _print_each(answers: Iterable[_QueryResult], show: _Show, *, said: bool) -> Counter[str]:
    """Print and count answers; note which are incomplete, unless that is `said` already."""
    counts = Counter[str]()
    for name, matches, short, replaced in answers:
        counts.update({"with a match": bool(matches)}, queries=1, matches=len(matches))
        counts.update(short=short, replaced=replaced)
        show(name, matches)
        counts["incomplete"] += not said and _is_cut(name, matches)
    return counts


def _end(counts: Counter[str], bad: BadRecords, exit_code: bool, pace: str | None) -> None:
    names = {name: counts[name] for name in _COUNTS}
    few = " (they match texts of the same words only)" if counts["short"] else ""
    render.summarise(
        None,
        "" if pace is None else render.listed(names, "with a match") + pace,
        "" if counts["matches"] else "no match",
        render.counted("short texts", counts["short"]) + few,
        not_utf8(counts["replaced"], counts["queries"]),
        render.counted("bad records", bad.count),
    )
    bad.settle(counts["queries"])
    if exit_code and not counts["matches"]:
        raise typer.Exit(render.ExitCode.NOT_FINE)


def _ask_parts(
    texts: Iterable[str],
    paths: list[str],
    reading: fpdb.Reading,
    bad: BadRecords,
    find: Callable[[str], PartMatches],
) -> Iterator[_QueryResult]:
    """Find documents with passages of the given texts, or of the texts of files."""
    for number, text in enumerate(texts, 1):
        yield f"text:{number}".removesuffix(":1"), find(text), False, False
    unkeyed = replace(reading, keyed=False)
    for record in records_of_files(paths, bad, lambda _: unkeyed) if paths else ():
        name = record.source if record.key is None else record.key
        try:
            yield name, find(record.text or ""), False, record.replaced
        except fpdb.InputError as error:
            bad(BadRecord(record.source, str(error), error.hint, record.key))


def _show_parts(name: Key, matches: PartMatches, target: Output) -> None:
    if target.form == "jsonl":
        facts = {"complete": matches.complete, "boilerplate": matches.boilerplate}
        render.record({"query": name, **facts, "matches": [match._asdict() for match in matches]})
        return
    for match in matches:
        cells = str(name), match.key, match.words, match.share, match.other_share, matches.complete
        shares = f"{match.share:.2f}", f"{match.other_share:.2f}"
        target.write(cells, (name, match.key, match.words, *shares), partial(title_in, match.meta))
    if not matches.complete:
        words = f", {matches.boilerplate:,} words in more than a thousand" * bool(
            matches.boilerplate
        )
        render.note(f"{name}: incomplete, because too many documents share its passages{words}")


def _ask_texts(
    database: fpdb.Database, texts: Iterable[str], near: dict[str, Any]
) -> Iterator[Asked]:
    sketched = near["k"] is None and (near["similarity"] or database.similarity) is not None
    for number, text in enumerate(texts, 1):
        question = database.preparer.questions([text], sketched=sketched)
        [matches] = database.query_prepared(question, **near)
        name = f"text:{number}".removesuffix(":1")
        yield Asked(name, matches, bool(question.short[0]))


def _ask_fingerprints(
    database: fpdb.Database, fingerprints: Iterable[str], base: Base, near: dict[str, Any]
) -> list[Asked]:
    """Query with the fingerprints that are given on the command line; an error comes first."""
    bits = database.plan.bits
    numbers = [(digits, fpdb.parse_fingerprint(digits, bits, base)) for digits in fingerprints]
    return [Asked(digits, database.query_fingerprint(number, **near)) for digits, number in numbers]


def _is_cut(name: Key, matches: Matches | PartMatches) -> bool:
    if not matches.complete:
        render.note(f"{name}: incomplete, because too many documents are that near")
    return not matches.complete


def _show(name: Key, matches: Matches, target: Output, *, of_bits: bool, bits: int | None) -> None:
    """Print the matches of a query; with a number of `bits`, also the percentage of equal ones."""
    plain = []
    for match in matches:
        percent = None if bits is None else equal_percent(1 - match.distance / bits)
        if target.form == "jsonl":
            plain.append(near_dict(match) | ({} if percent is None else {"percent": percent}))
            continue
        nearness = [likeness(match, bits=of_bits)]
        if percent is not None:
            nearness.append(f"{percent:.2f}")
        group = () if match.group is None else (match.group,)
        share = match.similarity if percent is None else percent
        cells = (str(name), match.key, match.distance, share, matches.complete, *group)
        shown = (name, match.key, *nearness, *group)
        target.write(cells, shown, partial(title_in, match.meta))
    if target.form == "jsonl":
        render.record({"query": name, "complete": matches.complete, "matches": plain})
