"""Readers: what stands between files or streams and texts. They know nothing of fingerprints."""

from fpdb.io.arrays import is_array, read_array
from fpdb.io.arrow import TableWriter, table_records
from fpdb.io.fields import BadRecord, Fields, Record
from fpdb.io.folders import size_of
from fpdb.io.follow import follow_parts
from fpdb.io.formats import FORMATS, SUFFIXES, is_table_file
from fpdb.io.html import LARGEST_HTML, html_text
from fpdb.io.markup import Markup
from fpdb.io.pairs import read_pairs
from fpdb.io.parts import PART, Part, read_parts
from fpdb.io.portable import is_portable, portable_file
from fpdb.io.records import Reading, read_records, read_rows
from fpdb.io.streams import Idle, Progress
from fpdb.io.texts import Text, read_lines, read_text
from fpdb.io.warc import Passing

__all__ = [
    "FORMATS",
    "LARGEST_HTML",
    "PART",
    "SUFFIXES",
    "BadRecord",
    "Fields",
    "Idle",
    "Markup",
    "Part",
    "Passing",
    "Progress",
    "Reading",
    "Record",
    "TableWriter",
    "Text",
    "follow_parts",
    "html_text",
    "is_array",
    "is_portable",
    "is_table_file",
    "portable_file",
    "read_array",
    "read_lines",
    "read_pairs",
    "read_parts",
    "read_records",
    "read_rows",
    "read_text",
    "size_of",
    "table_records",
]
