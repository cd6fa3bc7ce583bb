"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The types of results are in `fpdb.models`. The folders are the architecture, which
docs/explanation/architecture.md draws.
"""

# Before all others, because Ctrl-C may come while those are imported.
from fpdb import interrupts  # noqa: F401
from fpdb.database import Database
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
    WorkerError,
)
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
from fpdb.tables import Bands, JoinPlan, Plan, chance_matches, join_plans, plans

__version__ = "0.1.0"

create = Database.create
build = Database.build
open = Database.open  # noqa: A001 - as lmdb.open and shelve.open

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
    "DiskFullError",
    "Document",
    "DocumentNotFoundError",
    "ExactPair",
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
    "Secret",
    "ShortTextError",
    "StorageError",
    "Thresholds",
    "Weights",
    "WorkerError",
    "__version__",
    "build",
    "chance_matches",
    "check",
    "compare",
    "create",
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
    "sketch_jaccard",
]
