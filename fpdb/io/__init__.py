"""Readers: what stands between files or streams and texts. They know nothing of fingerprints."""

from fpdb.io.arrays import is_array, read_array
from fpdb.io.fields import BadRecord, Fields, Record
from fpdb.io.folders import size_of
from fpdb.io.formats import FORMATS, SUFFIXES
from fpdb.io.records import read_records
from fpdb.io.streams import LARGEST_TEXT
from fpdb.io.texts import Text, read_lines, read_text

__all__ = [
    "FORMATS",
    "LARGEST_TEXT",
    "SUFFIXES",
    "BadRecord",
    "Fields",
    "Record",
    "Text",
    "is_array",
    "read_array",
    "read_lines",
    "read_records",
    "read_text",
    "size_of",
]
