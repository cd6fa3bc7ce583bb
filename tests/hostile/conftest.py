"""What the tests of hostile input share with those of the command line."""

from outcomes import run

__all__ = ["run"]
