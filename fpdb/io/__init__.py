"""Readers: what stands between files or streams and texts. They know nothing of fingerprints."""

from fpdb.io.arrays import is_array, read_array
from fpdb.io.fields import BadRecord, Fields, Record
from fpdb.io.folders import size_of
from fpdb.io.follow import follow_parts
from fpdb.io.formats import FORMATS, SUFFIXES
from fpdb.io.pairs import read_pairs
from fpdb.io.parts import PART, Part, read_parts
from fpdb.io.records import read_records
from fpdb.io.streams import Idle, Progress
from fpdb.io.texts import Text, read_lines, read_text

__all__ = [
    "FORMATS",
    "PART",
    "SUFFIXES",
    "BadRecord",
    "Fields",
    "Idle",
    "Part",
    "Progress",
    "Record",
    "Text",
    "follow_parts",
    "is_array",
    "read_array",
    "read_lines",
    "read_pairs",
    "read_parts",
    "read_records",
    "read_text",
    "size_of",
]
