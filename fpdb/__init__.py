"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The types of results are in `fpdb.models`. The folders are the architecture, which
docs/explanation/architecture.md draws.

Each public name is imported when it is first used, so that a command starts fast.
"""

import importlib
import sys
import types
import typing

if sys.platform == "win32":
    raise ImportError(
        "fpdb needs Linux: found Windows, which lacks the locks and names of files that keep a "
        "database safe; use it in WSL or in a container, which the Containerfile makes"
    )

__version__ = "0.1.0"

# Type checkers and editors read the same in `__init__.pyi`.
_NAMES = {
    "fpdb": "models",
    "fpdb.database": "Database build create describe open",
    "fpdb.dedupe": "Deduplicated SourceLoss Removed dedupe",
    "fpdb.errors": (
        "AccessError ClosedError DamagedError DatabaseExistsError DatabaseNotFoundError "
        "DeadlineError DiskFullError DocumentNotFoundError FormatError FpdbError HtmlError "
        "IncompleteWarning InputError LockTimeoutError LossError MissingExtraError MovedError "
        "NotADatabaseError OpenError PlanError ReadOnlyError RecipeError RecipeMismatchError "
        "ShortTextError StorageError TagsWarning WorkerError"
    ),
    "fpdb.fingerprint": (
        "Grams Hash IdfTable Recipe Secret Weights compare distance doubtful_estimates "
        "least_estimate overlap read_recipe sketch_jaccard"
    ),
    "fpdb.fingerprint.digits": "format_fingerprint parse_fingerprint",
    "fpdb.fingerprint.presets": "recipe",
    "fpdb.flow": "Ingested",
    "fpdb.ingest": "documents_of follow ingest query_files",
    "fpdb.io.html": "html_text",
    "fpdb.io.records": "Reading",
    "fpdb.joins.evaluation": "Thresholds evaluate",
    "fpdb.joins.exact": "exact_pairs",
    "fpdb.kernels": "kernels_available",
    "fpdb.load": "load",
    "fpdb.look.corpus": "Reported report",
    "fpdb.look.explorer": "Explorer",
    "fpdb.maintenance.check": "check",
    "fpdb.maintenance.repair": "repair",
    "fpdb.models": "Added Cluster Document ExactPair Match Matches Pair",
    "fpdb.storage": "deadline",
    "fpdb.tables": "Bands JoinPlan Plan chance_matches join_plans plans",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


class _Package(types.ModuleType):
    """The module, whose names appear when they are first used."""

    def __getattr__(self, name: str) -> typing.Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if _MODULES[name] == __name__:
            return importlib.import_module(f"{__name__}.{name}")
        value = self.__dict__[name] = getattr(importlib.import_module(_MODULES[name]), name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import of the module fpdb.load would put it in the place of the function.
        if _MODULES.get(name, __name__) == __name__ or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_MODULES})


sys.modules[__name__].__class__ = _Package

__all__ = sorted([*_MODULES, "__version__"])  # noqa: PLE0605 - the stub has them for type checkers
