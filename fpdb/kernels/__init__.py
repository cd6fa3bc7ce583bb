"""Compiled twins of hot loops. The plain Python code beside each call defines the result, slowly.

A caller takes a kernel where `kernels.enabled` is true, and looks each time: tests change it. The
environment variable FPDB_KERNELS=0 turns all kernels off.
"""

import hashlib
import os
import warnings
from pathlib import Path

_FOLDER = Path(__file__).parent


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _usable() -> bool:
    """Return whether kernels may be used: in a source tree, only those of this very source."""
    source = sorted(path for path in _FOLDER.iterdir() if path.suffix in {".pxd", ".pyx"})
    if not source:
        return True
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in source)).hexdigest()
    try:
        built = _FOLDER.joinpath("built.txt").read_text()  # setup.py writes it
    except OSError:
        _warn("the kernels are not built: fpdb is ten times slower; tools/lab/kernels builds them")
        return False
    if built != digest:
        _warn(
            "the kernels were built from another source, so none is used; tools/lab/kernels builds "
            "them again"
        )
    return built == digest


enabled = False
if os.environ.get("FPDB_KERNELS", "1") != "0" and _usable():
    try:
        from fpdb.kernels import chinese as chinese
        from fpdb.kernels import lines as lines
        from fpdb.kernels import number_pages as number_pages
        from fpdb.kernels import records as records
        from fpdb.kernels import text as text
        from fpdb.kernels import text_pages as text_pages

        enabled = True
    except ImportError:
        _warn(
            "fpdb was installed without its kernels, and is at least ten times slower: install a "
            "wheel, or a compiler (apt-get install gcc) and fpdb-store again"
        )

available = kernels_available = enabled  # the second is its name in fpdb
