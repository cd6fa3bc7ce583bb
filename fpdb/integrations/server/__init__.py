"""A server for programs in any language and on any host, in front of one database.

`app` returns an ASGI application, which `serve` runs, or another application mounts.
"""

import fpdb

try:
    import granian  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvloop  # noqa: F401
except ImportError as error:
    raise fpdb.MissingExtraError(
        f"the server needs the package {error.name}, which isn't installed",
        hint="pip install 'fpdb-store[serve]'",
    ) from None

from fpdb.integrations.server.access import Access, read_tokens
from fpdb.integrations.server.application import Application, Limits, access_log
from fpdb.integrations.server.calls import CALLS, PAGES, explorer_calls
from fpdb.integrations.server.serving import serve

__all__ = ["Access", "Application", "Limits", "access_log", "app", "read_tokens", "serve"]


def app(
    database: fpdb.Database,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    similarity: float | None = None,
    explorer: fpdb.Explorer | None = None,
) -> Application:
    """Return an ASGI application that answers for a database, which stays the caller's to close.

    Texts with this `similarity` count as duplicates, by default that of the database. The pages of
    an `explorer` are at /explore/, where / leads.
    """
    calls = (*CALLS, *PAGES, *(explorer_calls(explorer) if explorer else ()))
    page = explorer.problem if explorer else None
    limits, access = limits or Limits(), access or Access()
    return Application(database, calls, limits, access, similarity, page=page)
