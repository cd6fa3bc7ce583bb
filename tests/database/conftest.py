from collections.abc import Iterator
from pathlib import Path

import pytest

import fpdb
from fpdb import Database, Grams, Recipe


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    """A recipe whose features are plain words; fewer than three are short."""
    return Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path, tiny: Recipe) -> Iterator[Database]:
    with fpdb.create(path, recipe=tiny) as database:
        yield database


@pytest.fixture
def numbered(tmp_path: Path, tiny: Recipe) -> Iterator[Database]:
    """A database with integer keys."""
    with fpdb.create(tmp_path / "numbered", recipe=tiny, keys="integer") as database:
        yield database
