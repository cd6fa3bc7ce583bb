"""Everything that fpdb raises on purpose.

FpdbError
├─ InputError (+ ValueError)           a text, a line or a value that can't be used as it is
│  └─ ShortTextError                   too few features for a trustworthy fingerprint
└─ RecipeError (+ ValueError)          a recipe that doesn't exist, or can't be built

Each error says what was found and what was expected, and carries a `hint` that cures.
"""


class FpdbError(Exception):
    """The base of all errors of fpdb; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(FpdbError, ValueError):
    """A text, a line or a value that can't be used as it is."""


class ShortTextError(InputError):
    """A text with fewer distinct features than its recipe asks for."""


class RecipeError(FpdbError, ValueError):
    """A recipe that doesn't exist, or whose parts don't fit together."""
