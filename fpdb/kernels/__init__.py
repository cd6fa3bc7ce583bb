"""Compiled twins of hot loops. The Python code beside each call defines the result.

A caller takes a kernel where `kernels.enabled` is true, and looks each time: tests change it. The
environment variable FPDB_KERNELS=0 turns all kernels off.
"""

import contextlib
import hashlib
import os
import warnings
from pathlib import Path

_FOLDER = Path(__file__).parent


def _usable() -> bool:
    """Return whether kernels may be used: in a source tree, only those of this very source."""
    source = sorted(path for path in _FOLDER.iterdir() if path.suffix in {".pxd", ".pyx"})
    if not source:
        return True
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in source)).hexdigest()
    try:
        built = _FOLDER.joinpath("built.txt").read_text()  # setup.py writes it
    except OSError:
        return False
    if built != digest:
        warnings.warn(
            "the kernels were built from another source, so none is used; tools/kernels builds "
            "them again",
            RuntimeWarning,
            stacklevel=2,
        )
    return built == digest


enabled = False
if os.environ.get("FPDB_KERNELS", "1") != "0" and _usable():
    with contextlib.suppress(ImportError):
        from fpdb.kernels import chinese as chinese
        from fpdb.kernels import number_pages as number_pages
        from fpdb.kernels import text as text
        from fpdb.kernels import text_pages as text_pages

        enabled = True

available = kernels_available = enabled  # the second is its name in fpdb
