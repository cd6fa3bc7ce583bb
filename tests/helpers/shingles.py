"""Shingles and their hashes, spelt out in plain Python."""

import re

# Thai, Lao, Burmese, Khmer, kana, Han.
SIGN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15


def shingles_of(text):
    """Return all shingles of a clean text as tuples of tokens."""
    tokens = []
    for run in re.findall(r"\w+", text):
        for piece in re.findall(rf"{SIGN.pattern}|(?:(?!{SIGN.pattern}).)+", run):
            tokens += [piece[at : at + 64] for at in range(0, len(piece), 64)]
    units = [3 if SIGN.match(token) else 5 for token in tokens]
    found = []
    for first in range(len(tokens)):
        for last in range(first, len(tokens)):
            if sum(units[first : last + 1]) >= 15:
                found.append(tuple(tokens[first : last + 1]))
                break
    return found


def mixed(number):
    """Spread a number over 64 bits, as splitmix64 finishes."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


def salted(place, seed):
    """Return the pseudo-random number of a place."""
    return mixed(((place + 1) * _ODD + seed) & _MASK)


def token_hash(token, seed=0):
    """Hash the letters of a token."""
    letters = (mixed((ord(c) * _ODD + salted(at, seed)) & _MASK) for at, c in enumerate(token))
    return mixed(sum(letters) & _MASK)


def shingle_hash(tokens, seed=0):
    """Hash the tokens of a shingle."""
    parts = (token_hash(each, seed) * (salted(at, 0) | 1) for at, each in enumerate(tokens))
    return mixed((sum(parts) + len(tokens)) & _MASK)


def vote_hash(tokens, bits, seed=0):
    """Return the bits with which a shingle votes on a fingerprint."""
    words = [mixed((shingle_hash(tokens, seed) + salted(at, 3)) & _MASK) for at in range(2)]
    return (words[0] | words[1] << 64) & (1 << bits) - 1
