"""The pages of the explorer as routes of the server."""

from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

import fpdb
from fpdb.integrations.server import ProblemError, Server

_MOST_FIELDS = 1_000


def routes(explorer: fpdb.Explorer) -> list[BaseRoute]:
    """Return routes for `fpdb.integrations.server.app`: pages below /explore/, where / leads."""

    async def page(request: Request) -> Response:
        server: Server = request.app.state.server
        posted = request.method == "POST"
        data = await server.body(request) if posted else request.scope["query_string"]
        try:
            fields = parse_qs(
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "the form has too many fields") from None
        answered = await server.read(
            explorer.answer,
            request.path_params.get("page", "overview"),
            fields,
            session=request.state.session,
            posted=posted,
            may_write=request.state.role == "write",
        )
        return Response(answered.body, answered.status, headers=answered.headers)

    async def home(_: Request) -> Response:
        return RedirectResponse("explore/", HTTPStatus.SEE_OTHER)

    return [
        Route("/", home, methods=["GET"]),
        Route("/explore/{page}", page, methods=["GET", "POST"]),
        Route("/explore/", page, methods=["GET"]),
    ]
