"""Build a sound database of what is intact in a damaged one, whose file is never mapped."""

import os
from pathlib import Path

from fpdb.models import Repaired, require_whole
from fpdb.storage import Environment, header, preflight
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY


def repair(
    path: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    memory: int = MEMORY,
) -> Repaired:
    """Write every document of a damaged database whose record is intact into a new one.

    The damaged one is only read, page by page, and nobody may write to it meanwhile. All tables are
    built anew. Nothing comes back that was deleted or replaced. The new database appears at its
    path whole, and on disk for good.

    If the header is lost, `like` names a database that was created with the same recipe, k, keys
    and plan. Sorting takes about `memory` bytes. No secret of a recipe is needed.
    """
    from fpdb.maintenance import repair as work

    require_whole("memory", memory, LEAST_MEMORY)
    directory = Path(os.path.realpath(path))
    preflight.identify(directory)
    preflight.require_vacant(Path(os.path.realpath(new)))
    otherwise = None
    if like is not None:
        with Environment.open(like, ["header"], readonly=True) as other, other.read() as txn:
            otherwise = header.decode(txn.get("header", b"header") or b"")
    return work.repair(directory, new, otherwise=otherwise, memory=memory)
