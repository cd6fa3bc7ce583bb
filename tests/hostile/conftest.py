"""What the tests of hostile input share with those of the command line."""

from commands import run

__all__ = ["run"]
