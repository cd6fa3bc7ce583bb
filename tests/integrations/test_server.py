"""The server, called in this process: what it answers, whom it lets in, and its limits."""

import asyncio
import gzip
import json
import os
import re
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from asgi import call, close
from damaged import spoil_bands

import fpdb
from fpdb.integrations import server
from fpdb.integrations.server import calls, messages
from fpdb.storage import WriteTransaction
from fpdb.storage.drafts import NOTICED_SECONDS

TEXT = (
    "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more than "
    "last year. Their young will fly before the summer is over, and begin the long journey south."
)
OTHER = "The old bridge at Lindow is closed, because the river has washed out one of its piers."
EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = {"content_type": "application/x-ndjson"}
WRITE, READ = "w" * 16, "r" * 16


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "crawl.fpdb") as database:
        yield database


def talk(db, *requests, **settings):
    """Send requests one after the other; return their answers."""

    async def run():
        app = server.app(db, **settings)
        answers = [await call(app, *request[:3], **dict(*request[3:])) for request in requests]
        await close(app)
        return answers

    return asyncio.run(run())


def check(key, text=TEXT, **more):
    return ("POST", "/v1/check", {"key": key, "text": text, **more})


def lines(*bodies):
    return b"\n".join(
        body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies
    )


def metric(answer, name):
    [line] = [line for line in answer.body.decode().splitlines() if line.startswith(name)]
    return float(line.rsplit(" ", 1)[1])


def test_a_document_is_stored_unless_it_resembles_a_stored_one(db):
    first, again, copy, new, short = talk(
        db, check("a", meta={"n": 1}), check("a", meta={"n": 1}), check("b"), check("a", OTHER),
        check("c", "kites")
    )  # fmt: skip
    assert first.status == 200
    assert first.json == {"key": "a", "status": "added"}
    assert again.json == {"key": "a", "status": "unchanged"}
    near = {"duplicate_of": "a", "distance": 0, "similarity": 1.0}
    assert copy.json == {"key": "b", "status": "duplicate", **near}
    assert new.json == {"key": "a", "status": "replaced"}
    assert short.json == {"key": "c", "status": "short"}
    assert list(db) == ["a", "c"]


def test_questions_are_answered_in_order_and_below_the_similarity_incompletely(db):
    asked = {"text": TEXT, "similarity": 0.5}
    several = lines(asked, {"text": OTHER}, b"[]", {"text": TEXT}, {"text": TEXT, "limit": 0})
    _, alone, many, fine = talk(
        db,
        check("a"),
        ("POST", "/v1/query", asked),
        ("POST", "/v1/query", several, LINES),
        ("POST", "/v1/query", asked | {"similarity": 0.8}),
    )
    assert [match["key"] for match in alone.json["matches"]] == ["a"]
    assert alone.json["complete"] is False
    assert "19% of what is similar from 0.5; compact it" in alone.json["hint"]
    first, other, bad, last, none = many.lines
    assert (first, other, last) == (alone.json, {"matches": []}, fine.json)
    assert all(each["matches"] == [] and each["error"] for each in (bad, none))
    assert set(fine.json) == {"matches"}


def test_documents_with_a_part_of_a_text_are_found(db, tmp_path):
    with fpdb.create(tmp_path / "parts.fpdb", passages=True) as parts:
        parts.add("a", TEXT, {"n": 1})
        parts.add("b", OTHER)
        longer = " ".join([TEXT, *(f"new{number}" for number in range(30))])
        asked = {"text": longer, "passages": True}
        alone, many, none, *wrong = talk(
            parts,
            ("POST", "/v1/query", asked),
            (
                "POST",
                "/v1/query",
                lines(asked, asked | {"text": longer[60:], "least": 0.9}, {"text": TEXT}),
                LINES,
            ),
            ("POST", "/v1/query", {"text": "kites", "passages": True}),
            ("POST", "/v1/query", asked | {"k": 3}),
            ("POST", "/v1/query", asked | {"text": None, "fingerprint": "ff"}),
            ("POST", "/v1/query", {"text": TEXT, "least": 0.5}),
        )
        [match] = parts.passages(longer)
    expected = {name: value for name, value in match._asdict().items() if name != "id"}
    assert alone.json == {"matches": [expected]}
    assert many.lines[:2] == [alone.json, {"matches": []}]
    assert many.lines[2]["matches"][0].keys() == {"key", "distance", "similarity", "meta"}
    assert none.json == {"matches": []}
    wrong += talk(db, ("POST", "/v1/query", asked))
    assert [each.status for each in wrong] == [422] * 4
    assert all(each.json["hint"] for each in wrong)


def test_a_look_stores_nothing(db):
    new, _, copy, itself = talk(
        db, check("a", store=False), check("a"), check("b", store=False), check("a", store=False)
    )
    assert new.json == {"key": "a", "status": "new"}
    assert copy.json["duplicate_of"] == "a"
    assert itself.json["status"] == "new"
    assert list(db) == ["a"]


def test_a_line_has_the_names_and_keys_that_files_have(db):
    documents = [
        {"key": 1, "id": 2, "text": TEXT, "content": "x", "meta": {"date": "2026-05-02"}},
        {"id": 17, "content": OTHER},
        {"key": None, "url": "u", "text": None, "body": TEXT},
    ]
    body = lines(*documents)
    checked, asked = talk(
        db, ("POST", "/v1/check", body, LINES), ("POST", "/v1/query", body, LINES)
    )
    found = [(each["key"], each["status"], each.get("duplicate_of")) for each in checked.lines]
    assert found == [(1, "added", None), (17, "added", None), ("u", "duplicate", "1")]
    assert list(db) == ["1", "17"]
    assert [each["matches"][0]["key"] for each in asked.lines] == ["1", "17", "1"]
    again, *_ = talk(db, check(17, OTHER, store=False))
    assert again.json == {"key": 17, "status": "new"}


def test_a_field_that_no_request_has_is_refused_by_its_name(db):
    name = "x" * 100_000
    typo, option, other, several, asked, long, deep = talk(
        db,
        ("POST", "/v1/check", {"key": "a", "txt": TEXT}),
        check("a", similarity=0.9),
        check("a", lang="en"),
        ("POST", "/v1/check", lines({"key": "a", "text": TEXT, "stor": False}), LINES),
        ("POST", "/v1/query", {"key": "a", "text": TEXT, "meta": 1, "store": False}),
        check("a", **{name: 1}),
        check("a", meta={"txt": 1, name[:1000]: 2}),
    )
    assert (typo.status, typo.json["hint"]) == (422, "did you mean text?")
    assert typo.json["detail"] == "Object contains unknown field `txt`"
    assert [answer.status for answer in (option, other, asked)] == [422] * 3
    fields = "text, content, body, html, fingerprint, recipe, key, id, url, meta, store"
    assert other.json["hint"] == f"the fields are {fields}; put others into meta"
    assert [line["hint"] for line in several.lines] == ["did you mean store?"]
    assert (long.status, len(long.json["detail"])) == (422, 200)
    assert deep.json["status"] == "added"


@pytest.mark.process
def test_pages_and_fingerprints_are_checked_too(db):
    page = f"<html><title>x</title><body><p>{TEXT}</p></body></html>"
    digits = fpdb.format_fingerprint(db.recipe.fingerprint(TEXT))
    added, copy, near, found = talk(
        db,
        check("a", None, html=page),
        check("b"),
        check("c", None, fingerprint=digits, recipe=db.recipe.id),
        ("POST", "/v1/query", {"fingerprint": digits}),
    )
    assert added.json["status"] == "added"
    assert copy.json["duplicate_of"] == "a"
    assert near.json == {"key": "c", "status": "duplicate", "duplicate_of": "a", "distance": 0}
    assert found.json == {"matches": [{"key": "a", "distance": 0}]}


def test_a_page_is_decoded_as_its_server_says(db):
    text = "红嘴鸥又在采石场上空筑巢，管理员四月里数到了十一对，比去年多四对。" * 3
    page = f"<html><body><p>{text}</p></body></html>"
    html = {"content_type": "text/html; charset=GBK"}
    url = "https://a.example/?a=1&b=ü"
    added, copy, no_key, unknown, look, wrong, few, lines_ = talk(
        db,
        ("POST", f"/v1/check?{urlencode({'key': url})}", page.encode("gbk"), html),
        check("b", text),
        ("POST", "/v1/check", page.encode("gbk"), html),
        ("POST", "/v1/check?key=a&meta=1", page.encode("gbk"), html),
        ("POST", "/v1/check?key=new&store=false", page.encode("gbk"), html),
        # A crawler that decodes it by itself, and wrongly.
        check("c", text.encode("gbk").decode("utf-8", "replace")),
        check("d", OTHER * 3 + "\ufffd"),
        ("POST", "/v1/check", lines({"key": "e", "text": "a\ufffd" * 90}), LINES),
    )
    assert added.json == {"key": url, "status": "added"}
    assert copy.json["duplicate_of"] == url
    assert no_key.status == 422
    assert "key=" in no_key.json["hint"]
    assert (unknown.status, "'meta'" in unknown.json["detail"]) == (422, True)
    assert look.json["duplicate_of"] == url
    assert "new" not in db
    assert wrong.json["replaced_characters"] > len(text) // 2
    assert "replaced_characters" not in few.json
    assert lines_.json["replaced_characters"] == 90


def test_a_packed_body_is_refused_instead_of_stored(db):
    packed = {"content_type": "text/html", "content_encoding": "gzip"}
    page = gzip.compress(b"<p>" + OTHER.encode() * 3)
    plain = {"content_type": "text/html", "content_encoding": "identity"}
    refused, added = talk(
        db, ("POST", "/v1/check?key=a", page, packed), ("POST", "/v1/check?key=b", b"<p>", plain)
    )
    assert (refused.status, "'gzip'" in refused.json["detail"]) == (415, True)
    assert (added.status, list(db)) == (200, ["b"])


def test_a_page_needs_a_token_that_may_write(db):
    access = server.Access([("read", READ)])
    reader = {"content_type": "text/html", "authorization": f"Bearer {READ}"}
    [refused] = talk(db, ("POST", "/v1/check?key=a", b"<p>kites", reader), access=access)
    assert refused.status == 403


def test_each_problem_has_its_status_and_a_hint(db):
    db.add("\ufffd", TEXT)
    requests = {
        400: [
            ("POST", "/v1/check", b"{"),
            ("POST", "/v1/check", b'{"key":"a","text":"\xff"}'),
            ("POST", "/v1/check", b'{"key":"a","text":"\\ud800"}'),
            ("DELETE", "/v1/documents?key=%ff"),
        ],
        404: [("GET", "/v1/documents?key=zz"), ("DELETE", "/v1/documents?key=zz"), ("GET", "/no")],
        405: [("GET", "/v1/check")],
        409: [check("a", recipe="0" * 16)],
        422: [
            check("a", None),
            check("a", html="<p>both"),
            check(None),
            check(True),
            check("a" * 65537),
            check("a", "x y" * 1_000_000),
            check("a", meta="x" * 65537),
            ("POST", "/v1/query", {"text": TEXT, "similarity": 2}),
            ("POST", "/v1/query", {"text": TEXT, "similarity": 0.9, "k": 3}),
            ("POST", "/v1/query", {"fingerprint": "1" + "0" * 16}),
            ("GET", "/v1/documents"),
        ],
    }
    for status, some in requests.items():
        for request, answer in zip(some, talk(db, *some), strict=True):
            assert (answer.status, answer.json["status"]) == (status, status), (request, answer)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json["detail"]
            assert answer.json.get("hint") or status in {404, 405}, answer
            assert "fpdb." not in answer.json.get("hint", ""), answer
    assert list(db) == ["\ufffd"]


def test_lines_are_answered_in_their_order(db):
    body = lines(
        {"key": "a", "text": TEXT},
        b"",
        {"key": "b", "text": TEXT},
        b"nonsense",
        {"key": 3, "text": OTHER, "html": OTHER},
        {"key": "b", "text": TEXT, "store": False},
        b"x" * 2000,
        {"key": "c", "text": OTHER},
    )
    limits = server.Limits(document=1000)
    parts = [body[start : start + 50] for start in range(0, len(body), 50)]
    for chunks in ([body], [body, b"\n"], parts):
        for key in list(db):
            db.delete(key)
        request = ("POST", "/v1/check", b"", LINES | {"chunks": chunks})
        [answer] = talk(db, request, limits=limits)
        assert answer.status == 200
        found = [(each["key"], each["status"]) for each in answer.lines]
        bad = (None, "error")
        assert found == [
            ("a", "added"), ("b", "duplicate"), bad, (3, "error"), ("b", "duplicate"), bad,
            ("c", "added"),
        ]  # fmt: skip
        assert all(each["hint"] for each in answer.lines if each["status"] == "error")


def test_lines_that_follow_each_other_closely_share_a_transaction(db):
    long = [{"key": f"{n}", "text": " ".join(f"w{n}x{m}" for m in range(500))} for n in range(120)]
    parts = [lines(*long[first : first + 3], b"") for first in range(0, 120, 3)]

    async def run():
        app = server.app(db)

        async def trickling(scope, receive, send):
            async def trickle():
                await asyncio.sleep(0.001)
                return await receive()

            await app(scope, trickle, send)

        answer = await call(trickling, "POST", "/v1/check", b"", chunks=parts, **LINES)
        metrics = await call(app, "GET", "/metrics")
        return answer, metrics.body.decode()

    answer, metrics = asyncio.run(run())
    assert [each["status"] for each in answer.lines] == ["added"] * 120
    [count] = [line for line in metrics.splitlines() if "transaction_documents_count" in line]
    assert float(count.split()[1]) < len(parts) / 2


def test_a_request_has_a_number_of_lines(db):
    body = lines(*({"key": str(number), "text": OTHER} for number in range(10)))
    parts = [each + b"\n" for each in body.split(b"\n")]
    request = ("POST", "/v1/check", b"", LINES | {"chunks": parts})
    [answer] = talk(db, request, limits=server.Limits(lines=5))
    assert len(answer.lines) == 6
    assert "more than 5 lines" in answer.lines[-1]["error"]
    [answer] = talk(db, request, limits=server.Limits(body=300))
    assert "300 bytes" in answer.lines[-1]["error"]


def test_lines_end_when_the_server_does(db):
    async def run():
        app = server.app(db)
        never = asyncio.Event()
        body = lines({"key": "a", "text": TEXT}, b"")
        sending = asyncio.create_task(
            call(app, "POST", "/v1/check", body, wait=never.wait(), **LINES)
        )
        while not len(db):
            await asyncio.sleep(0.01)
        assert not sending.done()
        app.stop()
        return await sending

    first, last = asyncio.run(run()).lines
    assert first == {"key": "a", "status": "added"}
    assert (last["key"], last["status"]) == (None, "failed")


def test_lines_that_come_after_the_end_get_a_status_that_says_so(db):
    async def run():
        app = server.app(db)
        app.stop()
        many = [lines({"key": str(number), "text": TEXT}, b"") for number in range(20)]
        return await call(app, "POST", "/v1/check", b"", chunks=many, **LINES)

    answer = asyncio.run(run())
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert len(db) == 0


def test_a_database_that_fails_says_so_for_each_line(db, monkeypatch):
    def fail(*_, **__):
        raise fpdb.DiskFullError("the disk is full", hint="free some of it")

    monkeypatch.setattr(fpdb.Database, "add_prepared", fail)
    one, many = talk(
        db, check("a"), ("POST", "/v1/check", lines({"key": "a", "text": TEXT}, b"x"), LINES)
    )
    assert (one.status, one.headers["retry-after"]) == (503, "1")
    assert [each["status"] for each in many.lines] == ["failed", "error"]


def test_damage_is_not_healthy_and_no_fault_of_a_client(db, tmp_path, caplog):
    watching = ("GET", "/healthz"), ("GET", "/metrics")
    db.add("a", TEXT)
    db.backup(tmp_path / "backup.fpdb")
    spoil_bands(db)
    healthy, before, one, many, asked, read, ill, after = talk(
        db,
        *watching,
        check("b"),
        ("POST", "/v1/check", lines({"key": "b", "text": TEXT}, b"x"), LINES),
        ("POST", "/v1/query", {"text": TEXT}),
        ("GET", "/v1/documents?key=a"),
        *watching,
    )
    assert (healthy.status, metric(before, "fpdb_damaged ")) == (200, 0)
    assert [answer.status for answer in (one, asked, read, ill)] == [503, 503, 200, 503]
    assert not any("retry-after" in answer.headers for answer in (one, asked, ill))
    assert [line["status"] for line in many.lines] == ["failed", "error"]
    assert ill.json["hint"] == "run `fpdb check`"
    assert metric(after, "fpdb_damaged ") == 1
    assert metric(after, 'fpdb_checked_documents_total{status="failed"}') == 2
    message = f"{db.path} is damaged: the checksum of a page is wrong"
    assert [record.getMessage() for record in caplog.records] == [message]
    db.path.rename(tmp_path / "damaged.fpdb")
    (tmp_path / "backup.fpdb").rename(db.path)
    time.sleep(NOTICED_SECONDS)
    restored, metrics = talk(db, *watching)
    assert (restored.status, metric(metrics, "fpdb_damaged ")) == (200, 0)


def test_documents_are_read_and_deleted(db):
    url = "/v1/documents?key=https%3A%2F%2Fa.example%2F%3Fn%3D1"
    _, found, deleted, gone = talk(
        db, check("https://a.example/?n=1", meta=[1]), ("GET", url), ("DELETE", url), ("GET", url)
    )
    assert found.json["fingerprint"] == fpdb.format_fingerprint(db.recipe.fingerprint(TEXT))
    assert (found.json["meta"], found.json["characters"]) == ([1], len(TEXT))
    assert (deleted.status, deleted.body, gone.status) == (204, b"", 404)


def test_answers_have_groups_where_these_are_kept(tmp_path):
    near = TEXT + " They will be back in spring."
    with fpdb.create(tmp_path / "grouped.fpdb", groups=True) as db:
        db.add("b", near + " Probably.")
        added, copy, other, looked, many, found, asked = talk(
            db,
            check("a", OTHER),
            check("c", near),
            check("d", "kites"),
            check("c", near, store=False),
            ("POST", "/v1/check", lines({"key": "e", "text": near}), LINES.items()),
            ("GET", "/v1/documents?key=a"),
            ("POST", "/v1/query", {"text": near}),
        )
    groups = [answer.json["group"] for answer in (added, copy, other, looked, found)]
    assert groups == ["a", "b", "d", "b", "a"]
    assert [line["group"] for line in many.lines] == ["b"]
    assert [match["group"] for match in asked.json["matches"]] == ["b"]


def test_keys_may_be_integers(tmp_path):
    with fpdb.create(tmp_path / "numbers.fpdb", keys="integer") as db:
        added, text, found, bad = talk(
            db,
            check(2**64 - 1),
            check("a"),
            ("GET", f"/v1/documents?key={2**64 - 1}"),
            ("GET", "/v1/documents?key=-1"),
        )
    assert added.json["key"] == found.json["key"] == 2**64 - 1
    assert (text.status, bad.status) == (422, 422)


def test_statistics_and_metrics_count_what_is_stored(db):
    _, _, stats, metrics, health = talk(
        db, check("a"), check("b"), ("GET", "/v1/stats"), ("GET", "/metrics"), ("GET", "/healthz")
    )
    assert (stats.json["documents"], stats.json["path"]) == (1, db.path.name)
    assert str(db.path.parent) not in stats.body.decode()
    assert health.json == {"status": "ok"}
    counted = dict(
        line.rsplit(" ", 1) for line in metrics.body.decode().splitlines() if line[0] != "#"
    )
    assert counted["fpdb_documents"] == "1.0"
    assert counted['fpdb_checked_documents_total{status="duplicate"}'] == "1.0"
    assert counted['fpdb_requests_total{call="POST /v1/check",status="200"}'] == "2.0"
    assert float(counted["fpdb_file_bytes"]) > 0
    assert counted["fpdb_transaction_documents_count"] == "2.0"
    assert counted["fpdb_waiting_documents"] == "0.0"
    assert counted[f'fpdb_build_info{{version="{fpdb.__version__}"}}'] == "1.0"
    assert float(counted["process_resident_memory_bytes"]) > 0


def test_alerts_and_the_dashboard_name_metrics_that_there_are(db):
    [_, metrics] = talk(db, check("a"), ("GET", "/metrics"))
    there = {
        re.match(r"\w+", line)[0] for line in metrics.body.decode().splitlines() if line[0] != "#"
    }
    for name in ("alerts.yaml", "dashboard.json"):
        written = (EXAMPLES / "server" / name).read_text(encoding="utf-8")
        named = set(re.findall(r"\b(?:fpdb|process)_[a-z_]+", written))
        assert len(named) > 5
        assert named <= there


def test_a_database_may_be_read_only(db):
    db.add("a", TEXT)
    with fpdb.open(db.path, readonly=True) as reader:
        stored, looked, deleted = talk(
            reader, check("b"), check("b", store=False), ("DELETE", "/v1/documents?key=a")
        )
    assert (stored.status, looked.status, deleted.status) == (403, 200, 403)


def test_a_thousand_checks_of_one_page_store_it_once(db):
    async def run():
        app = server.app(db)
        requests = (call(app, *check(str(number))) for number in range(1000))
        answers = await asyncio.gather(*requests)
        return [answer.json["status"] for answer in answers]

    statuses = asyncio.run(run())
    assert sorted(set(statuses)) == ["added", "duplicate"]
    assert statuses.count("added") == len(db) == 1


def test_the_application_may_be_mounted_in_another(db):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async def run():
        outer = Starlette(routes=[Mount("/near", app=server.app(db))])
        checked = await call(outer, "POST", "/near/v1/check", {"key": "a", "text": TEXT})
        return checked, await call(outer, "GET", "/near/v1/documents?key=a")

    checked, found = asyncio.run(run())
    assert checked.json["status"] == "added"
    assert found.json["key"] == "a"


# Who gets in


def test_pages_of_other_sites_stay_out(db):
    def statuses(**headers):
        """Of a request that reads and of one that writes."""
        requests = ("GET", "/v1/stats", b"", headers), (*check("a"), headers)
        return [answer.status for answer in talk(db, *requests)]

    assert statuses() == [200, 200]
    for host in ("127.0.0.1:7373", "[::1]:7373", "LOCALHOST"):
        assert statuses(host=host) == [200, 200], host
    for host in ("evil.example", "127.0.0.1.evil.example:7373", "", "[", "localhost@evil.example"):
        assert statuses(host=host) == [403, 403], host
    assert statuses(origin="http://localhost:7373") == [200, 200]
    for origin in ("http://evil.example", "null", "http://localhost:8080"):
        assert statuses(origin=origin) == [200, 403], origin


def test_tokens_say_who_may_write(db):
    access = server.Access([("write", WRITE), ("read", READ)])

    def statuses(authorization):
        headers = {"authorization": authorization, "host": "fpdb.example"}
        requests = (
            ("GET", "/healthz", b"", headers),
            ("GET", "/v1/stats", b"", headers),
            (*check("a", store=False), headers),
            (*check("a"), headers),
            ("POST", "/v1/check", b"x", LINES | headers),
            ("DELETE", "/v1/documents?key=a", b"", headers),
        )
        return [answer.status for answer in talk(db, *requests, access=access)]

    assert statuses(f"Bearer {WRITE}") == [200, 200, 200, 200, 200, 204]
    assert statuses(f"bearer {READ}") == [200, 200, 200, 403, 403, 403]
    assert statuses("Basic OnJycnJycnJycnJycnJycnI=") == [200, 200, 200, 403, 403, 403]
    for wrong in ("", "Bearer", f"Bearer {WRITE}x", f"Token {WRITE}", "Basic !", "Bearer \xff"):
        assert statuses(wrong) == [200, 401, 401, 401, 401, 401], wrong
    [answer] = talk(db, ("GET", "/v1/stats"), access=access)
    assert "Bearer" in answer.headers["www-authenticate"]
    assert answer.json["hint"]


def test_a_browser_is_invited_once(db):
    access = server.Access(required=True)
    stats = f"{access.base}/v1/stats"
    link = f"{stats}?token={access.invite('read')}&x=1"
    wrong, first, again = talk(
        db, ("GET", f"{stats}?token=wrong"), ("GET", link), ("GET", link), access=access
    )
    assert (wrong.status, first.status, again.status) == (401, 303, 401)
    assert first.headers["location"] == f"{stats}?x=1"
    cookie, *attributes = first.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", f"Path={access.base}/"} <= set(attributes)
    name, _, session = cookie.partition("=")
    body = json.dumps({"key": "a", "text": TEXT}).encode()
    answers = talk(
        db,
        ("GET", stats, b"", {"cookie": f"a=b; {cookie}"}),
        ("POST", f"{access.base}/v1/check", body, {"cookie": cookie}),
        # Nobody guesses the path, by which browsers keep sessions apart.
        ("GET", stats, b"", {"cookie": f"fpdb_session={session}"}),
        ("GET", "/v1/stats", b"", {"cookie": cookie}),
        ("GET", "/favicon.ico"),
        access=access,
    )
    assert [answer.status for answer in answers] == [200, 403, 401, 404, 204]
    assert name == f"fpdb_{access.base[1:]}"
    assert len(access.base) > 20
    assert access.base != server.Access(required=True).base


def test_a_token_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# a fleet\nwrite {WRITE}\n\n  read\t{READ} \n")
    path.chmod(0o600)
    assert server.read_tokens(path) == [("write", WRITE), ("read", READ)]
    for mode in (0o644, 0o660, 0o604):
        path.chmod(mode)
        with pytest.raises(fpdb.InputError, match=f"found the mode {mode:o}") as error:
            server.read_tokens(path)
        assert error.value.hint == f"chmod 600 {path}"
    path.chmod(0o600)
    for text in ("", "write short", f"admin {WRITE}", WRITE):
        path.write_text(text)
        with pytest.raises(fpdb.InputError):
            server.read_tokens(path)
    os.mkfifo(tmp_path / "pipe")
    path.write_text("#" * (1 << 20) + f"\nwrite {WRITE}")
    for other in (tmp_path / "none", tmp_path / "pipe", "/dev/zero", path):
        with pytest.raises(fpdb.InputError, match=str(other)):
            server.read_tokens(other)


@pytest.mark.parametrize("mode", [0o440, 0o640])
def test_a_group_that_is_trusted_may_read_the_tokens(tmp_path, monkeypatch, mode):
    path = tmp_path / "tokens"
    path.write_text(f"write {WRITE}\n")
    path.chmod(mode)
    assert server.read_tokens(path) == [("write", WRITE)]
    if os.getuid() == 0:
        os.chown(path, -1, 54321)
    else:
        monkeypatch.setattr(os, "getegid", lambda: 54321)
        monkeypatch.setattr(os, "getgroups", list)
    with pytest.raises(fpdb.InputError, match=f"found the mode {mode:o}"):
        server.read_tokens(path)
    monkeypatch.setattr(os, "getgroups", lambda: [path.stat().st_gid])
    assert server.read_tokens(path) == [("write", WRITE)]


def test_refused_tokens_are_logged_but_not_each(db, caplog):
    access = server.Access([("write", WRITE)])
    wrong = ("GET", "/v1/stats", b"", {"authorization": "Bearer wrong-wrong-wrong"})
    talk(db, ("GET", "/v1/stats"), wrong, wrong, wrong, access=access)
    [record] = caplog.records
    assert record.getMessage() == "refused an unknown token from 127.0.0.1"
    assert "wrong-wrong" not in caplog.text


def test_hosts_and_origins_come_once(db):
    async def run(name):
        async def app(scope, receive, send):
            twice = [*scope["headers"], (name.encode(), b"localhost:7373")]
            await inner(scope | {"headers": twice}, receive, send)

        inner = server.app(db)
        headers = {name: "localhost:7373"}
        return await call(app, "GET", "/v1/stats", **headers)

    for name in ("host", "origin"):
        assert asyncio.run(run(name)).status == 400


# Limits


def test_a_document_has_a_size(db):
    limits = server.Limits(document=1000)
    long = json.dumps({"key": "a", "text": "x" * 1000}).encode()
    declared, streamed = talk(
        db,
        ("POST", "/v1/check", b"{", {"content_length": "1001"}),
        ("POST", "/v1/check", b"", {"chunks": [long[:500], long[500:]]}),
        limits=limits,
    )
    assert (declared.status, streamed.status) == (413, 413)


def test_more_requests_than_the_limit_are_put_off(db):
    async def run(limits):
        app = server.app(db, limits=limits)
        enough = asyncio.Event()
        slow = [
            asyncio.create_task(call(app, "POST", "/v1/check", b'{"key":', wait=enough.wait()))
            for _ in range(2)
        ]
        await asyncio.sleep(0.01)
        third = await call(app, *check("a"))
        enough.set()
        await asyncio.gather(*slow)
        return third, await call(app, *check("a"))

    for limits in (server.Limits(requests=2), server.Limits(memory=220)):
        third, later = asyncio.run(run(limits))
        assert (third.status, third.headers["retry-after"]) == (503, "1"), limits
        assert later.status == 200


def test_a_request_takes_no_longer_than_the_limit(db):
    async def run(**headers):
        app = server.app(db, limits=server.Limits(seconds=0.05))
        never = asyncio.Event()
        return await call(app, "POST", "/v1/check", b'{"key":', wait=never.wait(), **headers)

    assert asyncio.run(run()).status == 503
    answer = asyncio.run(run(**LINES))
    assert answer.status == 408
    assert "no line was complete for 0.05 seconds" in answer.json["detail"]


def test_an_answer_has_a_size(db):
    with fpdb.open(db.path) as writer:
        list(writer.add_many(fpdb.Document(str(n), TEXT, {"v": "m" * 500}) for n in range(200)))
    limits = server.Limits(answer=10_000)
    for limit in (30, 200):
        body = {"text": TEXT, "limit": limit}
        fits, single, many = talk(
            db,
            ("POST", "/v1/query", {"text": TEXT, "limit": 10}),
            ("POST", "/v1/query", body),
            ("POST", "/v1/query", lines(body, {"text": TEXT, "limit": 3}), LINES),
            limits=limits,
        )
        assert len(fits.json["matches"]) == 10
        assert single.status == 413
        assert "ask for fewer" in single.json["hint"]
        assert "more than 10,000 bytes" in many.lines[0]["error"]
        assert len(many.lines[1]["matches"]) == 3


def test_large_metadata_are_refused_before_they_are_decoded(db):
    many = b'{"key":"a","text":"x","meta":[' + b"[]," * 300_000 + b"[]]}"
    [refused] = talk(db, ("POST", "/v1/check", many))
    assert refused.status == 422
    assert "metadata of more than 524,288 bytes" in refused.json["detail"]


def test_a_server_that_is_busy_can_be_watched(db):
    async def run():
        app = server.app(db, limits=server.Limits(requests=2))
        enough = asyncio.Event()
        slow = [
            asyncio.create_task(call(app, "POST", "/v1/check", b'{"key":', wait=enough.wait()))
            for _ in range(2)
        ]
        await asyncio.sleep(0.01)
        paths = ("/v1/stats", "/healthz", "/metrics")
        statuses = [(await call(app, "GET", path)).status for path in paths]
        enough.set()
        await asyncio.gather(*slow)
        return statuses

    assert asyncio.run(run()) == [503, 200, 200]


def test_nothing_is_held_after_requests(db):
    async def run():
        app = server.app(db, limits=server.Limits(seconds=0.2, document=2000))
        many = lines(*({"key": str(n), "text": OTHER} for n in range(2000)))
        never = asyncio.Event()
        await call(app, *check("a"))
        await call(app, "POST", "/v1/check", b"{")
        await call(app, "POST", "/v1/query", many, **LINES)
        await call(app, "POST", "/v1/check", b"x" * 1999, wait=never.wait(), **LINES)
        await call(app, "POST", "/v1/check", b"x" * 1999, wait=never.wait())
        gone = asyncio.create_task(call(app, "POST", "/v1/check", many, **LINES))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert (app.held, app.requests) == (0, 0)
        await close(app)

    asyncio.run(run())


def test_empty_lines_are_no_progress(db):
    async def run():
        app = server.app(db, limits=server.Limits(seconds=0.2))

        async def trickling(scope, receive, send):
            async def trickle():
                await asyncio.sleep(0.05)
                return {"type": "http.request", "body": b"\n", "more_body": True}

            await app(scope, trickle, send)

        return await asyncio.wait_for(call(trickling, "POST", "/v1/check", b"", **LINES), 10)

    assert asyncio.run(run()).status == 408


def test_no_more_lines_are_read_while_nobody_takes_the_answers(db):
    db.add("a", TEXT, meta={"v": "m" * 60_000})
    questions = lines(*({"text": TEXT} for _ in range(200)), b"")

    async def run():
        app, came = server.app(db), 0

        async def stuck(scope, receive, send):
            async def more():
                nonlocal came
                came += 1
                return {"type": "http.request", "body": questions, "more_body": True}

            async def hold(message):
                await asyncio.Event().wait()

            await app(scope, more, hold)

        asking = asyncio.create_task(call(stuck, "POST", "/v1/query", b"", **LINES))
        await asyncio.sleep(0.5)
        first = came
        await asyncio.sleep(0.3)
        assert came == first < (4 << 20) / len(questions)
        assert 0 < app.held < 4 << 20
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert app.held == 0

    asyncio.run(run())


def test_no_line_is_answered_for_a_client_that_is_gone(db, monkeypatch):
    monkeypatch.setattr(calls, "_TURN_SECONDS", -1)  # each answer is sent by itself
    db.add("a", TEXT)

    async def run():
        app, begun = server.app(db), asyncio.Event()
        messages = [{"type": "http.request", "body": lines(*[{"text": TEXT}] * 500)}]

        async def left(scope, receive, send):
            async def leave():
                if messages:
                    return messages.pop()
                await begun.wait()
                return {"type": "http.disconnect"}

            async def take(message):
                begun.set()
                await send(message)

            await app(scope, leave, take)

        return await call(left, "POST", "/v1/query", b"", **LINES)

    assert 0 < len(asyncio.run(run()).lines) < 10


@pytest.mark.parametrize("request_", [check("b", OTHER), ("DELETE", "/v1/documents?key=a")])
def test_nothing_is_stored_of_a_request_that_took_too_long(db, monkeypatch, request_):
    db.add("a", TEXT)
    before = list(db)

    async def run():
        app = server.app(db, limits=server.Limits(seconds=0.1))
        answer = await call(app, *request_)
        at_once = list(db)
        await close(app)
        return answer, at_once

    leave = WriteTransaction.__exit__

    def slow(self, *arguments):
        time.sleep(0.3)
        return leave(self, *arguments)

    monkeypatch.setattr(WriteTransaction, "__exit__", slow)
    answer, at_once = asyncio.run(run())
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert at_once == list(db) == before
    monkeypatch.undo()
    [answer] = talk(db, request_)
    assert answer.status in {200, 204}
    assert list(db) != before


# The description


def test_the_description_is_fresh(db):
    import openapi

    [answer] = talk(db, ("GET", "/openapi.json"))
    assert answer.headers["content-type"] == "application/json"
    assert answer.body == openapi.description(), "run `tools/docs --write`"


def test_the_description_has_examples_that_are_valid(db):
    [answer] = talk(db, ("GET", "/openapi.json"))
    described = answer.json
    for kind in (messages.CheckBody, messages.QueryBody):
        assert kind.__name__ in described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, called in methods.items():
            url = path + ("?key=none" if "parameters" in called else "")
            body = called.get("requestBody", {}).get("content", {"": {"example": {}}})
            for kind, content in body.items():
                example = content["example"]
                sent = example.encode() if isinstance(example, str) else example
                [answer] = talk(db, (method.upper(), url, sent, {"content_type": kind}))
                assert str(answer.status) in called["responses"] or "parameters" in called


def test_a_line_that_takes_too_long_leaves_the_answers_to_others(db, monkeypatch):
    monkeypatch.setattr(calls, "_look", lambda *_: time.sleep(0.6))
    body = lines({"key": "a", "text": TEXT}, {"key": "b", "text": OTHER, "store": False})
    [answer] = talk(db, ("POST", "/v1/check", body, LINES), limits=server.Limits(seconds=0.3))
    assert answer.status == 200
    assert [line["status"] for line in answer.lines] == ["added", "failed"]
    assert list(db) == ["a"]
