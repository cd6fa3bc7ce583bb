"""What a torment measured."""

from typing import NamedTuple


class Figures(NamedTuple):
    """The result of a torment; only `lost` and `inconsistent` of 0 are good.

    `acknowledged` counts documents that were added, replaced or deleted by calls that returned,
    `lost` those of them that weren't there afterwards, `inconsistent` the rounds after which
    anything else was wrong, `refused` damaged databases that were refused and not served. `control`
    says how the known-bad variant failed, which shows that the torment would notice.
    """

    rounds: int
    acknowledged: int
    lost: int
    inconsistent: int
    refused: int = 0
    control: str = ""
    notes: dict[str, object] = {}  # noqa: RUF012 - nobody changes it

    @property
    def good(self) -> bool:
        """Whether nothing was lost, and nothing was wrong."""
        return self.rounds > 0 and not self.lost and not self.inconsistent


class ControlError(Exception):
    """A known-bad variant passed: the torment is blind, and its figures mean nothing."""
