"""Make features of segments: n-grams, without stop words and pieces that are too small."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Grams:
    """Which segments make a feature, and how many features a text needs.

    `n` segments in a row make a feature; a text with fewer is one feature. Segments in
    `stop_words`, or with fewer than `min_length` characters, are dropped first. A text with fewer
    than `minimum` distinct features is short. `keep_empty` gives an empty text one empty feature.
    """

    n: int = 1
    stop_words: tuple[str, ...] = ()
    min_length: int = 1
    minimum: int = 1
    keep_empty: bool = False

    @cached_property
    def whole_segments(self) -> bool:
        """Tell that no segment is ever dropped, and no feature made of nothing."""
        return not self.stop_words and self.min_length <= 1 and not self.keep_empty

    @cached_property
    def _stopped(self) -> frozenset[str]:
        return frozenset(self.stop_words)

    def keeps(self, segment: str) -> bool:
        """Tell whether a segment may become part of a feature."""
        return len(segment) >= self.min_length and segment not in self._stopped

    def features(self, segments: Sequence[str]) -> Sequence[str]:
        """Give the features in their order; characters in a string join without a space."""
        if self.stop_words or self.min_length > 1:
            kept = list(filter(self.keeps, segments))
            segments = "".join(kept) if isinstance(segments, str) else kept
        if not segments:
            return [""] if self.keep_empty else []
        count = max(len(segments) - self.n + 1, 1)
        if isinstance(segments, str):
            return [segments[start : start + self.n] for start in range(count)]
        if self.n == 1:
            return segments
        return [" ".join(segments[start : start + self.n]) for start in range(count)]
