"""Tests of the mission run commands, as users do."""

from commands import run, start

__all__ = ["run", "start"]
