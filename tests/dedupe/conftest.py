"""Corpora with copies, and files of them."""

import gzip
import json
import random

import pytest


@pytest.fixture
def corpus():
    """Return N records: most texts are new, others are edited a little, or the same."""

    def make(count, seed=1, edited=0.4):
        chance = random.Random(seed)
        words = [f"word{number}" for number in range(4000)]
        texts = []
        records = []
        for number in range(count):
            if texts and chance.random() < edited:
                copy = chance.choice(texts).split()
                if chance.random() < 0.7:
                    copy[chance.randrange(len(copy))] = "edited"
                text = " ".join(copy)
            else:
                text = " ".join(chance.choices(words, k=chance.randint(60, 90)))
                texts.append(text)
            records.append({"id": f"doc-{number}", "text": text, "n": number})
        return records

    return make


@pytest.fixture
def jsonl(tmp_path):
    """Write records to a file of JSON lines, packed as its name says."""

    def write(name, records):
        data = "".join(json.dumps(each) + "\n" for each in records).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write
