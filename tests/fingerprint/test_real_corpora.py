"""What only real texts can show; they are read from the folder that FPDB_CORPORA names."""

import gzip
import json
import os
from pathlib import Path

import pytest
from twins import defined

import fpdb
from fpdb.fingerprint import segmentation

FOLDER = os.environ.get("FPDB_CORPORA")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="FPDB_CORPORA names no folder with .txt, .tsv, .jsonl (or .gz) files"
)
CHARACTERS = 500_000  # of each corpus


def corpora():
    files = sorted(Path(FOLDER).rglob("*")) if FOLDER else []
    return [
        path
        for path in files
        if path.is_file() and set(path.suffixes) & {".txt", ".tsv", ".jsonl", ".json", ".csv"}
    ]


def beginning(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        lines = file.readlines(CHARACTERS)
    if ".jsonl" in path.suffixes:
        rows = map(json.loads, lines)
        lines = [value for row in rows for value in row.values() if isinstance(value, str)]
    return "\n".join(lines)


@pytest.mark.parametrize("path", corpora(), ids=lambda path: str(path.relative_to(FOLDER)))
def test_the_kernel_cuts_real_text_as_jieba_does(path):
    text = beginning(path)
    found = segmentation.CUTS["jieba"](text)
    with defined():
        assert found == segmentation.CUTS["jieba"](text)


@pytest.mark.parametrize("path", corpora(), ids=lambda path: str(path.relative_to(FOLDER)))
def test_simhash_py_is_bit_equal_on_real_text(path):
    simhash = pytest.importorskip("simhash")
    lines = [line for line in beginning(path).split("\n")[:300] if len(line) < 5000]
    found = fpdb.recipe("simhash-py").fingerprint_many(lines).tolist()
    assert found == [simhash.Simhash(line).value for line in lines]
