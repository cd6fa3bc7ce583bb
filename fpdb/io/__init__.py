"""Readers: what stands between files or streams and texts. They know nothing of fingerprints."""

from fpdb.io.texts import LARGEST_TEXT, Text, read_lines, read_text

__all__ = ["LARGEST_TEXT", "Text", "read_lines", "read_text"]
