"""Tests of the command line run commands, not scripts."""

from commands import run, start

__all__ = ["run", "start"]
