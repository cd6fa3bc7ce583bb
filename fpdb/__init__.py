"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The types of results are in `fpdb.models`. The folders are the architecture, which
docs/explanation/architecture.md draws.

A name is imported when it is first used, so that a command starts fast.
"""

# Before all others, because Ctrl-C may come while those are imported.
from fpdb import interrupts  # noqa: F401, I001

import importlib
import sys
import types
import typing

if sys.platform == "win32":
    raise ImportError(
        "fpdb needs Linux: found Windows, which lacks the locks and names of files that keep a "
        "database safe; use it in WSL or in a container, which the Containerfile makes"
    )

from fpdb.errors import (
    AccessError,
    ClosedError,
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    DiskFullError,
    DocumentNotFoundError,
    FormatError,
    FpdbError,
    HtmlError,
    IncompleteWarning,
    InputError,
    LockTimeoutError,
    MissingExtraError,
    MovedError,
    NotADatabaseError,
    OpenError,
    PlanError,
    ReadOnlyError,
    RecipeError,
    RecipeMismatchError,
    ShortTextError,
    StorageError,
    TagsWarning,
    WorkerError,
)

if typing.TYPE_CHECKING:
    from fpdb.database import Database, build, create, describe, open
    from fpdb.dedupe import Deduplicated, Removed, dedupe
    from fpdb.explorer import Explorer
    from fpdb.fingerprint import (
        Grams,
        Hash,
        IdfTable,
        Recipe,
        Secret,
        Weights,
        compare,
        distance,
        least_estimate,
        overlap,
        read_recipe,
        sketch_jaccard,
    )
    from fpdb.fingerprint import preset as recipe
    from fpdb.fingerprint.digits import format_fingerprint, parse_fingerprint
    from fpdb.ingest import Ingested, documents_of, follow, ingest, query_files
    from fpdb.io.html import html_text
    from fpdb.io.records import Reading
    from fpdb.joins import evaluate, exact_pairs
    from fpdb.kernels import available as kernels_available
    from fpdb.load import load
    from fpdb.maintenance.check import check
    from fpdb.maintenance.merge import merge
    from fpdb.maintenance.repair import repair
    from fpdb.models import Added, Cluster, Document, ExactPair, Match, Matches, Pair, Thresholds
    from fpdb.report import Reported, report, report_evaluation
    from fpdb.tables import Bands, JoinPlan, Plan, chance_matches, join_plans, plans

__version__ = "0.1.0"

# Where each public name comes from; the imports above are for type checkers and editors.
_HOMES = {
    "fpdb.database": "Database build create describe open",
    "fpdb.dedupe": "Deduplicated Removed dedupe",
    "fpdb.explorer": "Explorer",
    "fpdb.fingerprint": "Grams Hash IdfTable Recipe Secret Weights compare distance least_estimate "
    "overlap preset read_recipe sketch_jaccard",
    "fpdb.fingerprint.digits": "format_fingerprint parse_fingerprint",
    "fpdb.ingest": "Ingested documents_of follow ingest query_files",
    "fpdb.io.html": "html_text",
    "fpdb.io.records": "Reading",
    "fpdb.joins": "evaluate exact_pairs",
    "fpdb.kernels": "available",
    "fpdb.load": "load",
    "fpdb.maintenance.check": "check",
    "fpdb.maintenance.merge": "merge",
    "fpdb.maintenance.repair": "repair",
    "fpdb.models": "Added Cluster Document ExactPair Match Matches Pair Thresholds",
    "fpdb.report": "Reported report report_evaluation",
    "fpdb.tables": "Bands JoinPlan Plan chance_matches join_plans plans",
}
_PLACES = {name: (module, name) for module, names in _HOMES.items() for name in names.split()}
_PLACES["recipe"] = _PLACES.pop("preset")
_PLACES["kernels_available"] = _PLACES.pop("available")


class _Package(types.ModuleType):
    """The module fpdb, which imports its names when they are first used."""

    def __getattr__(self, name: str) -> typing.Any:
        if name in _PLACES:
            module, its_name = _PLACES[name]
            value = getattr(importlib.import_module(module), its_name)
        elif name == "models":
            value = importlib.import_module("fpdb.models")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import of the module fpdb.load would put it in the place of the function.
        if name not in _PLACES or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_PLACES, "models"})


sys.modules[__name__].__class__ = _Package

__all__ = [
    "AccessError",
    "Added",
    "Bands",
    "ClosedError",
    "Cluster",
    "DamagedError",
    "Database",
    "DatabaseExistsError",
    "DatabaseNotFoundError",
    "Deduplicated",
    "DiskFullError",
    "Document",
    "DocumentNotFoundError",
    "ExactPair",
    "Explorer",
    "FormatError",
    "FpdbError",
    "Grams",
    "Hash",
    "HtmlError",
    "IdfTable",
    "IncompleteWarning",
    "Ingested",
    "InputError",
    "JoinPlan",
    "LockTimeoutError",
    "Match",
    "Matches",
    "MissingExtraError",
    "MovedError",
    "NotADatabaseError",
    "OpenError",
    "Pair",
    "Plan",
    "PlanError",
    "ReadOnlyError",
    "Reading",
    "Recipe",
    "RecipeError",
    "RecipeMismatchError",
    "Removed",
    "Reported",
    "Secret",
    "ShortTextError",
    "StorageError",
    "TagsWarning",
    "Thresholds",
    "Weights",
    "WorkerError",
    "__version__",
    "build",
    "chance_matches",
    "check",
    "compare",
    "create",
    "dedupe",
    "describe",
    "distance",
    "documents_of",
    "evaluate",
    "exact_pairs",
    "follow",
    "format_fingerprint",
    "html_text",
    "ingest",
    "join_plans",
    "kernels_available",
    "least_estimate",
    "load",
    "merge",
    "open",
    "overlap",
    "parse_fingerprint",
    "plans",
    "query_files",
    "read_recipe",
    "recipe",
    "repair",
    "report",
    "report_evaluation",
    "sketch_jaccard",
]
