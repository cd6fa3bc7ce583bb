"""The explorer as pages of the server: sessions, roles, and requests of other sites."""

import asyncio
import re
from urllib.parse import urlencode

import pytest
from asgi import call, close

import fpdb
from fpdb.integrations import server

pytestmark = pytest.mark.process


TEXT = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def database(tmp_path):
    with fpdb.create(tmp_path / "crawl.fpdb") as database:
        database.add("a", TEXT)
        yield database


def browse(database, visits, *, role="write", write=True):
    """Let a browser that is invited visit pages one after the other; return the answers."""

    async def run(explorer):
        access = server.Access(required=True)
        app = server.app(database, access=access, explorer=explorer)
        app = below(app, access.base)
        first = await call(app, "GET", f"/explore/?token={access.invite(role)}")
        assert (first.status, first.headers["location"]) == (303, f"{access.base}/explore/")
        cookie = first.headers["set-cookie"].partition(";")[0]
        found = [await visit(app, cookie) for visit in visits]
        await close(app)
        return found

    with fpdb.Explorer(database, write=write) as explorer:
        return asyncio.run(run(explorer))


def below(app, base):
    """Return an application that finds another one below a path."""

    async def lead(scope, receive, send):
        path = scope.get("path") and base + scope["path"]
        await app({**scope, "path": path}, receive, send)

    return lead


def get(page, **headers):
    async def visit(app, cookie):
        return await call(app, "GET", f"/explore/{page}", **({"cookie": cookie} | headers))

    return visit


def post(page, **fields):
    async def visit(app, cookie):
        near = await call(app, "GET", "/explore/near", cookie=cookie)
        token = re.search('name="token" value="([^"]*)"', near.body.decode())[1]
        headers = {"cookie": cookie, "origin": fields.pop("origin", "http://localhost:7373")}
        body = urlencode({"token": token} | fields, doseq=True).encode()
        return await call(app, "POST", f"/explore/{page}", body, **headers)

    return visit


def test_pages_are_for_sessions(database):
    async def home(app, cookie):
        return await call(app, "GET", "/", cookie=cookie)

    overview, page, stranger, lead = browse(
        database, [get(""), get("document?key=a"), get("", cookie=""), home]
    )
    assert "<title>crawl.fpdb · fpdb</title>" in overview.body.decode()
    assert overview.headers["content-security-policy"].startswith("default-src 'none'; style-src")
    assert overview.headers["cache-control"] == "no-store"
    assert page.status == 200
    assert stranger.status == 401
    assert (lead.status, lead.headers["location"]) == (303, "explore/")


def test_who_uses_the_address_again_gets_a_page_that_says_what_to_do(database):
    stranger = {"cookie": "", "accept": "text/html,*/*"}
    page, plain = browse(database, [get("?token=used", **stranger), get("", cookie="")])
    assert (page.status, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert ">This address works once</p>" in page.body.decode()
    assert page.headers["www-authenticate"] == "Bearer"
    assert plain.headers["content-type"] == "application/problem+json"


def test_forms_change_what_they_may(database):
    sure = {"key": "a", "which": "marked", "sure": "1"}
    for options in ({"role": "read"}, {"write": False}):
        [refused] = browse(database, [post("delete", **sure)], **options)
        assert refused.status == 403
    foreign, put, good = browse(
        database,
        [
            post("delete", origin="http://evil.example", **sure),
            lambda app, cookie: call(app, "PUT", "/explore/delete", cookie=cookie),
            post("delete", **sure),
        ],
    )
    assert foreign.status == 403
    assert put.status == 405
    assert good.status == 200
    assert len(database) == 0


def test_large_and_odd_forms(database):
    async def odd(app, cookie):
        return await call(app, "POST", "/explore/near", b"\xff%ff&=&&a=%00", cookie=cookie)

    most = {f"field{number}": 1 for number in range(1001)}
    large, many, odd_one = browse(
        database, [post("near", text="x" * (5 << 20)), post("near", **most), odd]
    )
    assert large.status == 413
    assert many.status == 400
    assert odd_one.status == 403
