"""The oracle that judges what kills and power cuts leave."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fpdb


def far(number: int) -> int:
    """Give fingerprints that are far from each other."""
    return random.Random(number).getrandbits(64)


@pytest.fixture(params=[0.8, None], ids=["similarity", "bits"])
def judged(
    request: pytest.FixtureRequest, torment: Callable[[str], ModuleType], tmp_path: Path
) -> Any:
    """A database with ten documents, and an oracle that heard of them."""
    rows = [[f"key {n}", None, far(n), None] for n in range(10)]
    with fpdb.create(tmp_path / "db", similarity=request.param) as db:
        db.add_fingerprints([row[0] for row in rows], [row[2] for row in rows])
        oracle = torment("oracle").Oracle(db)
        oracle.hear({"begin": {"op": "load", "documents": rows}})
        oracle.hear({"done": []})
        yield db, oracle


def add(*keys: str) -> dict[str, Any]:
    documents = [[key, None, far(50 + place), None] for place, key in enumerate(keys)]
    return {"op": "add", "documents": documents, "skip": False}


def test_a_deleted_document_that_is_there_is_lost(judged: Any) -> None:
    db, oracle = judged
    oracle.hear({"begin": {"op": "delete", "keys": ["key 1"]}})
    oracle.hear({"done": []})
    assert oracle.judge(db).lost == 1


@pytest.mark.parametrize(("done", "good"), [(0, True), (1, False), (2, True)])
def test_what_is_in_flight_is_there_wholly_or_not(judged: Any, done: int, good: bool) -> None:
    db, oracle = judged
    oracle.hear({"begin": add("a", "b")})
    for key, _, number, _ in add("a", "b")["documents"][:done]:
        db.add_fingerprints([key], [number])
    verdict = oracle.judge(db)
    assert verdict.good == good
    assert "half of this" in "".join(verdict.problems) or good
    assert oracle.judge(db).good, "what was found is known by now"
