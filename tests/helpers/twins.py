"""Compare kernels with the Python code that defines their results."""

from contextlib import contextmanager

import pytest

from fpdb import kernels


@contextmanager
def defined():
    """Run the definitions: no kernel is used inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", False)
        yield
