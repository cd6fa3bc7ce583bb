"""Load a new database from sorted columns, which are verified and never sorted again.

`manifest` reads what a directory of columns says of itself, `documents` and `tables` its columns.
"""

from fpdb.loading.manifest import SortedColumns
from fpdb.loading.tables import fill

__all__ = ["SortedColumns", "fill"]
