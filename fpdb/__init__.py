"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The folders are the architecture, and imports point down:

    cli | integrations     the command line; nothing that the library can't do | Scrapy's pipeline
    database               the facade: what can be changed, in transactions
    reader                 its other half: what can be asked
    snapshot               a view of one moment, with the questions of the facade
    handle                 an open database: its header, plan and recipe
    checking               a database that is read by a further process, for it may be damaged
    loading                a new database from columns that are sorted already
    preparing              what is done with a part of the input, in any process
    repairing              a sound database of what is intact in a damaged one
    corpus | io            work over whole databases | readers of documents and texts
    documents              documents by key and id, looked up and written
    tables                 bits -> candidates: permutations, plans, pages, the index
    storage | fingerprint  LMDB and every byte on disk | text -> bits: recipes and their stages
    workers                processes that run a function, in order
    columns                columns of pandas, polars and Arrow
    models                 frozen values
    errors                 the exception tree
"""

import typing

from fpdb.checking import check
from fpdb.database import Database
from fpdb.documents import Prepared, Preparer
from fpdb.documents import digest_of as text_digest
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
    InputError,
    LockTimeoutError,
    MapFullError,
    MissingExtraError,
    NoSketchError,
    NotADatabaseError,
    OpenError,
    PlanError,
    ReadersFullError,
    ReadOnlyError,
    RecipeError,
    RecipeMismatchError,
    ShortTextError,
    StorageError,
    TooNewError,
    UnsupportedFileSystemError,
    UpgradeRequiredError,
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
    read_recipe,
    sketch_jaccard,
)
from fpdb.fingerprint import preset as recipe
from fpdb.io import html_text
from fpdb.models import (
    Added,
    Batch,
    Cluster,
    Comparison,
    Document,
    Evaluation,
    Group,
    HtmlText,
    Match,
    Matches,
    Outgrown,
    Pair,
    Problem,
    Rating,
    RecipeQuality,
    Repaired,
    Snapshots,
    Stats,
    TableStats,
)
from fpdb.preparing import documents_of
from fpdb.repairing import repair
from fpdb.snapshot import Snapshot
from fpdb.tables import (
    Costs,
    Hits,
    JoinCosts,
    JoinPlan,
    Permutation,
    Plan,
    Table,
    TableProbes,
    first_look,
    join_plans,
    plans,
)

__version__ = "0.1.0"

create = Database.create
build = Database.build
load_sorted = Database.load_sorted
open = Database.open  # noqa: A001 - as lmdb.open and shelve.open

if typing.TYPE_CHECKING:
    from fpdb.corpus import evaluate, evaluation_html, evaluation_svg

__all__ = [
    "AccessError",
    "Added",
    "Batch",
    "ClosedError",
    "Cluster",
    "Comparison",
    "Costs",
    "DamagedError",
    "Database",
    "DatabaseExistsError",
    "DatabaseNotFoundError",
    "DiskFullError",
    "Document",
    "DocumentNotFoundError",
    "Evaluation",
    "FormatError",
    "FpdbError",
    "Grams",
    "Group",
    "Hash",
    "Hits",
    "HtmlError",
    "HtmlText",
    "IdfTable",
    "InputError",
    "JoinCosts",
    "JoinPlan",
    "LockTimeoutError",
    "MapFullError",
    "Match",
    "Matches",
    "MissingExtraError",
    "NoSketchError",
    "NotADatabaseError",
    "OpenError",
    "Outgrown",
    "Pair",
    "Permutation",
    "Plan",
    "PlanError",
    "Prepared",
    "Preparer",
    "Problem",
    "Rating",
    "ReadOnlyError",
    "ReadersFullError",
    "Recipe",
    "RecipeError",
    "RecipeMismatchError",
    "RecipeQuality",
    "Repaired",
    "Secret",
    "ShortTextError",
    "Snapshot",
    "Snapshots",
    "Stats",
    "StorageError",
    "Table",
    "TableProbes",
    "TableStats",
    "TooNewError",
    "UnsupportedFileSystemError",
    "UpgradeRequiredError",
    "Weights",
    "WorkerError",
    "__version__",
    "build",
    "check",
    "compare",
    "create",
    "distance",
    "documents_of",
    "evaluate",
    "evaluation_html",
    "evaluation_svg",
    "first_look",
    "html_text",
    "join_plans",
    "load_sorted",
    "open",
    "plans",
    "read_recipe",
    "recipe",
    "repair",
    "sketch_jaccard",
    "text_digest",
]


def __getattr__(name: str) -> typing.Any:
    """Import the evaluation of recipes when it is first asked for: most programs never do."""
    if name in {"evaluate", "evaluation_html", "evaluation_svg"}:
        from fpdb import corpus

        return getattr(corpus, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
