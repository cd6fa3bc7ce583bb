"""What is kept is what the definition says: one document after the other, unless it is like one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.documents.layout import header_for, layout
from fpdb.documents.lookup import Search
from fpdb.documents.prepare import Preparer
from fpdb.fingerprint.sketches import least_estimate, one_jaccard
from fpdb.joins import selection
from fpdb.joins.selection import Selection, TextColumns
from fpdb.storage.format import Stored

WORDS = [f"word{number}" for number in range(300)]


def preparer_of(*, similarity, k):
    settings = {"capacity": 1_000_000, "keys": "text", "plan": None}
    recipe, header = header_for("web", similarity=similarity, k=k, **settings)
    return Preparer(header, *layout(header), recipe)


def documents_of(texts, preparer):
    """Documents of texts, and of ready fingerprints."""
    documents = []
    for number, text in enumerate(texts):
        ready = isinstance(text, int)
        key = f"{number % 7}-{number}"
        documents.append(fpdb.Document(key, None if ready else text, None, text if ready else None))
    return preparer.prepare(documents)


def alike(index, search, one, other):
    """Whether a document resembles an earlier one: its similarity and distance, or nothing."""
    if one.fingerprint is None or other.fingerprint is None:
        same = one.fingerprint is other.fingerprint and one.digest == other.digest
        return (1.0, 0) if same and any(one.digest) else None
    apart = (one.fingerprint ^ other.fingerprint).bit_count()
    if search.similarity is None or not (one.sketch or one.digest):
        return (0.0, apart) if apart <= search.k else None
    if not set(index.band_numbers(one)) & set(index.band_numbers(other)):
        return None
    share = 1.0 if one.digest == other.digest else one_jaccard(one.sketch, other.sketch)
    return (share, apart) if share >= least_estimate(search.similarity) else None


def by_definition(index, search, documents):
    kept, nearest = [], {}
    for number, document in enumerate(documents):
        found = [(alike(index, search, document, documents[own]), own) for own in kept]
        found = [(each, own) for each, own in found if each]
        if found:
            nearest[number] = min(found, key=lambda f: (-f[0][0], f[0][1], documents[f[1]].key))
        else:
            kept.append(number)
    return kept, nearest


def by_join(index, search, documents, size):
    selected, kept, nearest = Selection(index, search), [], {}
    for start in range(0, len(documents), size):
        block = TextColumns.of(documents[start : start + size], 64)
        marks, crowded = selected.choose(block, np.zeros(len(block), np.bool_))
        assert not crowded.any()
        kept += (marks.nonzero()[0] + start).tolist()
        names = [documents[own].key for own in kept]
        near = selected.nearest(block, marks, names.__getitem__)
        for place in (~marks).nonzero()[0].tolist():
            share = 0.0 if np.isnan(near.shares[place]) else float(near.shares[place])
            own = kept[int(near.kept[place])]
            nearest[start + place] = ((share, int(near.distances[place])), own)
    assert len(selected) == len(kept)
    return kept, nearest


@st.composite
def corpora(draw):
    """TextColumns and copies of them with some words changed, among ready fingerprints."""
    texts = []
    for _ in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["new", "copy", "edited", "edited", "short", "ready"]))
        if kind == "short":
            texts.append(draw(st.sampled_from(["", "kites", "kites nest", "!"])))
        elif kind == "ready":
            texts.append(draw(st.sampled_from([0, 1, 3, 0xFF, 1 << 63, (1 << 63) + 7])))
        elif kind == "new" or not texts:
            begin = draw(st.integers(0, 250))
            texts.append(" ".join(WORDS[begin : begin + draw(st.integers(5, 50))]))
        else:
            old = draw(st.sampled_from(texts))
            if kind == "edited" and isinstance(old, str):
                words = old.split() or ["a"]
                words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(WORDS))
                old = " ".join(words)
            texts.append(old)
    return texts


@given(
    texts=corpora(),
    size=st.sampled_from([1, 3, 50]),
    most=st.sampled_from([1, 10, 1 << 22]),
    how=st.sampled_from([(0.8, 3), (0.5, 3), (0.95, 7), (None, 0), (None, 3), (None, 9)]),
)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_kept_is_what_the_definition_keeps(texts, size, most, how):
    """In blocks of any size, which are halved if they have many pairs."""
    similarity, k = how
    preparer, search = preparer_of(similarity=similarity, k=k), Search(k, None, similarity)
    documents = documents_of(texts, preparer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_MOST_PAIRS", most)
        patch.setattr(selection, "_PAIRS", min(most, 5))
        found = by_join(preparer.index, search, documents, size)
    assert found == by_definition(preparer.index, search, documents)


def test_what_is_known_to_be_removed_isnt_compared_with():
    preparer = preparer_of(similarity=0.8, k=3)
    documents = documents_of([" ".join(WORDS[:40])] * 4, preparer)
    selected = Selection(preparer.index, Search(3, None, 0.8))
    known = np.array([True, False, False, False])
    kept, _ = selected.choose(TextColumns.of(documents, 64), known)
    assert kept.tolist() == [False, True, False, False]
    nearest = selected.nearest(TextColumns.of(documents, 64), kept, lambda _: "")
    assert nearest.kept.tolist() == [-1, -1, 0, 0]


def test_a_crowd_is_compared_with_some_of_it_and_says_so(monkeypatch):
    """Many documents that agree in a band, and resemble none of each other."""
    monkeypatch.setattr(selection, "MOST_OF_A_BAND", 20)
    index, search = preparer_of(similarity=0.8, k=3).index, Search(3, None, 0.8)
    chance = np.random.default_rng(1)
    sketches = chance.integers(1, 255, (100, 128), np.uint8)
    sketches[:, :8] = 7  # the same first bands
    documents = [
        Stored(0, str(number), number, 0, bytes([number + 1]) * 16, b"", 1, bytes(sketch))
        for number, sketch in enumerate(sketches)
    ]
    selected = Selection(index, search)
    crowds = []
    for start in range(0, 100, 10):
        kept, crowded = selected.choose(
            TextColumns.of(documents[start : start + 10], 64), np.zeros(10, np.bool_)
        )
        assert kept.all()
        crowds += crowded.tolist()
    assert crowds == [False] * 30 + [True] * 70
    monkeypatch.setattr(selection, "MOST_OF_A_BAND", 10_000)
    monkeypatch.setattr(selection, "MOST_COMPARED", 20)
    selected = Selection(index, search)
    _, crowded = selected.choose(TextColumns.of(documents[:30], 64), np.zeros(30, np.bool_))
    assert not crowded.any()
    kept, crowded = selected.choose(
        TextColumns.of([*documents[30:31], documents[0]], 64), np.zeros(2, np.bool_)
    )
    # The copy shares most bands with the first one, and so is still found.
    assert crowded.tolist() == [True, True]
    assert kept.tolist() == [True, False]
