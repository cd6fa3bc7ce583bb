"""Tell what a database holds, and how much room each part takes."""

from fpdb.documents import Catalog
from fpdb.errors import PlanError
from fpdb.models import Outgrown, Stats, TableStats
from fpdb.storage import Environment, ReadTransaction
from fpdb.storage.format import Counters, Header
from fpdb.tables import Index, Plan, estimate_cost, plans
from fpdb.tables.planner import USUAL, first_look

# A rebuild must make queries and inserts so many times as fast to be worth its time.
_WORTHWHILE = 1.2


def stats(
    txn: ReadTransaction, index: Index, catalog: Catalog, head: Header, environment: Environment
) -> Stats:
    """Gather the counters, the sizes and what the header says."""
    counters = Counters.unpack(txn.get("header", b"counters"))
    plan = index.plan
    query_k = first_look(plan.bits, plan.k, USUAL) if catalog.sketched else None
    tables = tuple(
        TableStats(name, table.prefix, txn.entries(name))
        for name, table in zip(index.names, plan.tables, strict=True)
    )
    return Stats(
        path=str(environment.path),
        uuid=head["uuid"],
        created=head["created"],
        recipe=head["recipe"]["name"],
        recipe_id=head["recipe_id"],
        bits=plan.bits,
        k=plan.k,
        keys=head["keys"],
        plan=plan.name,
        capacity=head["capacity"],
        documents=counters.documents,
        short=counters.short,
        bytes=environment.file_bytes(),
        bytes_used=sum(map(txn.bytes_of, ("header", *catalog.names, *index.names))),
        tables=tables,
        outgrown=_outgrown(plan, head["capacity"], counters.documents, query_k),
        sketch=head.get("sketch"),
        sketches=counters.sketches,
        snapshots=txn.open_snapshots(),
    )


def _outgrown(plan: Plan, capacity: int, documents: int, query_k: int | None) -> Outgrown | None:
    if documents <= capacity:
        return None
    best = plans(plan.bits, plan.k, documents, query_k=query_k)[0]
    try:
        own, other = (estimate_cost(each, documents, query_k) for each in (plan, best))
    except PlanError:  # a plan of the user's own, which can't serve the first look
        own, other = (estimate_cost(each, documents) for each in (plan, best))
    if other.seconds_per_document * _WORTHWHILE > own.seconds_per_document:
        return None
    return Outgrown(
        plan=best.name,
        seconds=(own.seconds_per_document, other.seconds_per_document),
        bytes=(own.bytes, other.bytes),
    )
