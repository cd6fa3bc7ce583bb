from array import array

def make_table(dictionary: bytes) -> array[int]:
    """Return the table of a dictionary, whose lines are words with their frequency and tag.

    Raises:
        ValueError: A line is another, or the dictionary is too large.
    """

def cut(table: array[int], text: str) -> list[str]:
    """Return the words of runs of Han, and the line feeds between the runs."""
