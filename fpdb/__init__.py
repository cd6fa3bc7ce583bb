"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The types of results are in `fpdb.models`. The folders are the architecture, which
docs/explanation/architecture.md draws.

The public names are in `__init__.pyi`, where type checkers and editors read them. Each is imported
when it is first used, so that a command starts fast.
"""

import importlib
import pathlib
import sys
import types
import typing

if sys.platform == "win32":
    raise ImportError(
        "fpdb needs Linux: found Windows, which lacks the locks and names of files that keep a "
        "database safe; use it in WSL or in a container, which the Containerfile makes"
    )

__version__ = "0.1.0"

# The lines "from MODULE import ITS_NAME as NAME" of the stub.
_LINES = map(str.split, pathlib.Path(__file__).with_suffix(".pyi").read_text("utf-8").splitlines())
_PLACES = {line[5]: (line[1], line[3]) for line in _LINES if line[:1] == ["from"]}


class _Package(types.ModuleType):
    """The module, whose names appear when they are first used."""

    def __getattr__(self, name: str) -> typing.Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, its_name = _PLACES[name]
        if module == __name__:
            return importlib.import_module(f"{module}.{its_name}")
        value = self.__dict__[name] = getattr(importlib.import_module(module), its_name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import of the module fpdb.load would put it in the place of the function.
        if _PLACES.get(name, (__name__,))[0] == __name__ or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_PLACES})


sys.modules[__name__].__class__ = _Package

__all__ = sorted([*_PLACES, "__version__"])  # noqa: PLE0605 - the stub has them for type checkers
