"""What a database finds, one by one or as a table of pyarrow, pandas or polars."""

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, starmap
from typing import Any, Generic, NamedTuple, TypeVar

from fpdb.errors import MissingExtraError
from fpdb.models import Cluster, Matches, Pair, PartPair

_T = TypeVar("_T")


class Columns(NamedTuple, Generic[_T]):
    """The columns of a table, with their types in Arrow, and the rows of the N-th that was found.

    The type "key" is that of the keys of the database.
    """

    types: dict[str, str]
    rows: Callable[[int, _T], Iterable[tuple[Any, ...]]]


# The command line writes pairs and clusters in the same columns.
_NEAR = {"distance": "int32", "similarity": "double"}
PAIRS: Columns[Pair] = Columns(
    {"key": "key", "other": "key", **_NEAR, "exact": "bool"}, lambda _, pair: [pair]
)
PART_PAIRS: Columns[PartPair] = Columns(
    {"key": "key", "other": "key", "words": "int64", "share": "double", "other_share": "double"},
    lambda _, pair: [pair],
)
MATCHES: Columns[Matches] = Columns(
    {"query": "int64", "key": "key", "id": "uint64", **_NEAR},
    lambda number, matches: ((number, *match[:4]) for match in matches),
)
CLUSTERS: Columns[Cluster] = Columns(
    {"cluster": "int64", "role": "string", "key": "key"},
    lambda number, cluster: [
        (number + 1, "keep", cluster.representative),
        *((number + 1, "duplicate", key) for key in cluster.duplicates),
    ],
)


class Results(Iterator[_T], Generic[_T]):
    """What was found: to be iterated once, or made a table with one call, e.g. `to_pandas`.

    A table has a row for each pair; for each document of a cluster, with the number of the cluster
    from 1 on and "keep" or "duplicate"; or for each match of a query, with the number of the query
    from 0 on, as in a list, and without metadata. What was iterated before isn't in it.
    """

    def __init__(self, results: Generator[_T], columns: Columns[_T], keys: str) -> None:
        self._results = results
        self._columns = columns
        self._keys = keys

    def __next__(self) -> _T:
        return next(self._results)

    def close(self) -> None:
        """End the search, and the transaction in which it reads."""
        self._results.close()

    def to_arrow(self) -> Any:
        """Return a table of pyarrow."""
        from fpdb.io.arrow import require

        require()
        import pyarrow

        types, rows = self._columns
        key = "string" if self._keys == "text" else "uint64"
        kinds = [key if kind == "key" else kind for kind in types.values()]
        schema = pyarrow.schema(list(zip(types, map(pyarrow.type_for_alias, kinds), strict=True)))
        cells = chain.from_iterable(starmap(rows, enumerate(self._results)))
        values = list(zip(*cells, strict=True)) or [()] * len(types)
        return pyarrow.table(values, schema=schema)

    def to_pandas(self) -> Any:
        """Return a DataFrame of pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a DataFrame of polars."""
        table = self.to_arrow()
        try:
            import polars
        except ImportError:
            raise MissingExtraError(
                "found no package polars, expected it for such a table", hint="pip install polars"
            ) from None
        return polars.from_arrow(table)
