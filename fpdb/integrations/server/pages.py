"""The pages of an explorer as calls."""

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qs

import fpdb
from fpdb.integrations.server.application import Call, Request
from fpdb.integrations.server.replies import HttpReply, ProblemError

_MOST_FIELDS = 1_000


def explorer_calls(explorer: fpdb.Explorer) -> Sequence[Call]:
    """Return the calls that are answered by the pages of an explorer."""

    async def home(_: Request) -> HttpReply:
        return HttpReply(status=HTTPStatus.SEE_OTHER, headers={"Location": "explore/"})

    async def page(request: Request) -> HttpReply:
        posted = request.scope["method"] == "POST"
        data = await request.body() if posted else request.scope["query_string"]
        try:
            fields = parse_qs(
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "the form has too many fields") from None
        answer = partial(
            explorer.answer,
            request.scope["path"].rpartition("/")[2],
            fields,
            session=request.visitor.session,
            posted=posted,
            may_write=request.visitor.role == "write",
        )
        found = await request.read(answer)
        request.application.memory.hold(request, len(found.body))
        return HttpReply(found.body, found.status, found.headers)

    return (
        Call("GET", "/", home),
        Call("GET", "/explore", home),
        Call("GET", "/explore/*", page),
        Call("POST", "/explore/*", page),
    )
