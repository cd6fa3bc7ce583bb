"""Tests of the mission run commands, as users do."""

from outcomes import run, start

__all__ = ["run", "start"]
