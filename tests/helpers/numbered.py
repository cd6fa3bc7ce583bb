"""Documents that are told by their numbers, and the keys that a database has."""

import fpdb


def text_of(number):
    """Return a text that is long enough for a fingerprint, and like none of another number."""
    return " ".join(f"word{place}of{number}" for place in range(15))


def keys_in(path):
    """Return the keys that a database has."""
    with fpdb.open(path, readonly=True) as database:
        return list(database)
