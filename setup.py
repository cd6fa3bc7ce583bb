"""Build the kernels: every `fpdb/kernels/*.pyx` becomes a module beside it.

They are optional: where the compiler is missing or fails, fpdb is installed without them.
Everything else about the package is in pyproject.toml.
"""

import hashlib
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

FOLDER = Path("fpdb", "kernels")
# The stable interface of Python 3.11, so that one build serves all later versions too. Builds of
# Python without a global lock don't have it.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
MACROS = [("Py_LIMITED_API", "0x030B0000")] if LIMITED else []


def digest():
    """Return the digest by which `fpdb.kernels` checks that its source is the one built here."""
    source = sorted(path for path in FOLDER.iterdir() if path.suffix in {".pxd", ".pyx"})
    return hashlib.blake2b(b"".join(path.read_bytes() for path in source)).hexdigest()


class BuildKernels(build_ext):
    """Build all kernels or none."""

    def run(self):
        """Build, and go on without kernels if the compiler fails."""
        try:
            super().run()
            if self.inplace:  # kernels of another source aren't used
                (FOLDER / "built.txt").write_text(digest())
        except (BaseError, CCompilerError, OSError) as error:
            self.extensions = []
            self.warn(f"no kernels are built: {error}; fpdb runs without them, but slower")


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=list(map(str, sorted(FOLDER.glob("*.pxd")))),
            define_macros=MACROS,
            extra_compile_args=["-O3", "-g0"],
            py_limited_api=LIMITED,
        )
        for source in sorted(FOLDER.glob("*.pyx"))
    ],
    options={
        "build_ext": {"cython_c_in_temp": True},
        "bdist_wheel": {"py_limited_api": "cp311"} if LIMITED else {},
    },
)
