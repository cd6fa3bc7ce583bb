"""The texts of stored documents from a file, for an exact comparison of those that may be pairs."""

from dataclasses import dataclass
from typing import Annotated

import typer

import fpdb
from fpdb.cli.databases import require
from fpdb.cli.sources import Base, RecordFormat, make_fields
from fpdb.errors import InputError
from fpdb.ingest import parse_key
from fpdb.io import BadRecord, read_records
from fpdb.models import LARGEST_TEXT, Key

ExactOption = Annotated[
    str | None,
    typer.Option(
        "--exact",
        metavar="FILE|DIR",
        help="Compare the texts themselves: the records that were ingested.",
    ),
]
ExactKeyOption = Annotated[
    str | None, typer.Option("--key-field", metavar="F", help="With --exact: the field of the key.")
]
ExactTextOption = Annotated[
    list[str] | None,
    typer.Option(
        "--text-field", metavar="F", help="With --exact: the field of the text; several are joined."
    ),
]


@dataclass(frozen=True)
class Exact:
    """A file of documents, and how it is read."""

    path: str | None
    form: RecordFormat | None
    key: str | None
    text: list[str] | None

    def texts(
        self, database: fpdb.Database, k: int | None, min_jaccard: float | None
    ) -> dict[Key, str] | None:
        """Read the texts of all documents that stand in a pair of the first look, and no others."""
        if self.path is None:
            described = self.form or self.key or self.text
            require(not described, "--format, --key-field and --text-field go with --exact")
            return None
        if min_jaccard is None:
            raise typer.BadParameter("--exact goes with --min-jaccard")
        if k is None:
            k = fpdb.first_look(database.plan.bits, database.k, min_jaccard)
        wanted = {key for cluster in database.clusters(k) for key in cluster.keys}
        fields = make_fields(self.key, self.text, None, None, Base.HEX, None)
        found: dict[Key, str] = {}
        for record in read_records(
            self.path, format=self.form, fields=fields, max_bytes=LARGEST_TEXT
        ):
            if isinstance(record, BadRecord) or record.key is None or record.text is None:
                continue  # what couldn't be ingested is missed where it should have been
            try:
                key = parse_key(record.key, database.keys)
            except InputError:
                continue
            if key in wanted:
                found[key] = record.text
        return found
