"""A server for programs in any language and on any host, in front of one database.

`app` returns an ASGI application, which `serve` runs, or another application mounts.
"""

import fpdb

try:
    import httptools  # noqa: F401
    import msgspec  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvloop  # noqa: F401
except ImportError as error:
    raise fpdb.MissingExtraError(
        f"the server needs the package {error.name}, which isn't installed",
        hint="pip install 'fpdb-store[serve]'",
    ) from None

from fpdb.integrations.server.access import Access, read_tokens
from fpdb.integrations.server.application import Application, app
from fpdb.integrations.server.server import Limits
from fpdb.integrations.server.serving import serve

__all__ = ["Access", "Application", "Limits", "app", "read_tokens", "serve"]
