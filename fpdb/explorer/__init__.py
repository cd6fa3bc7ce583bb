"""Pages over a database, made by this process: its groups, what is near and why, decisions."""

from fpdb.explorer.explorer import Explorer
from fpdb.explorer.parts import ServedPage, Visit

__all__ = ["Explorer", "ServedPage", "Visit"]
