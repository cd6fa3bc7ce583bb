"""How far the first look reaches: the distance within which texts of a Jaccard similarity lie."""

from fpdb.errors import InputError

# From the smallest Jaccard similarity that is wanted to k, for 64 bits and the recipe web. Of the
# pairs of three corpora that are that similar, so many lie within k (news-zh, laws-zh, reuters-en).
_K_OF_64 = (
    (0.95, 6),  # .99, 1, 1
    (0.8, 7),  # .98, 1, .99
    (0.75, 8),  # .99, 1, .98
    (0.7, 9),  # .99, 1, .99
    (0.6, 12),  # .95, 1, .97
    (0.5, 15),  # .91, 1, .97
)
LEAST = _K_OF_64[-1][0]
# What a near-duplicate usually is; tables of a database with sketches are chosen for it.
USUAL = 0.8


def first_look(bits: int, k: int, min_jaccard: float) -> int:
    """Choose the k of the first look: never below the database's own."""
    for least, within in _K_OF_64:
        if min_jaccard >= least:
            # A distance grows with the bits; 32 of them take a half more rather than less.
            return max(k, -(-within * bits // 64))
    raise InputError(
        f"no k is known that finds the texts with a Jaccard similarity of {min_jaccard}, "
        f"expected at least {LEAST}",
        hint="give the k of the first look as well; 16 of 64 bits hold most texts at .5",
    )
