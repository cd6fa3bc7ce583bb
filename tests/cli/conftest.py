"""Tests of the command line run commands, not scripts."""

from outcomes import run, start

__all__ = ["run", "start"]
