"""Readers and writers: files and streams as records and texts. Nothing here uses fingerprints."""

from fpdb.io.arrow import TableWriter, table_records
from fpdb.io.files import (
    FORMATS,
    PART,
    SUFFIXES,
    Part,
    check_path,
    read_parts,
    read_records,
    size_of,
)
from fpdb.io.follow import follow_parts, require_followable
from fpdb.io.html import html_text
from fpdb.io.records import LARGEST_HTML, BadRecord, Reading, Record
from fpdb.io.streams import Text, binary_file, read_lines, read_text
from fpdb.io.tables import read_pairs
from fpdb.io.warc import Passing

__all__ = [
    "FORMATS",
    "LARGEST_HTML",
    "PART",
    "SUFFIXES",
    "BadRecord",
    "Part",
    "Passing",
    "Reading",
    "Record",
    "TableWriter",
    "Text",
    "binary_file",
    "check_path",
    "follow_parts",
    "html_text",
    "read_lines",
    "read_pairs",
    "read_parts",
    "read_records",
    "read_text",
    "require_followable",
    "size_of",
    "table_records",
]
