"""What is kept is what the definition says: one document after the other, unless it is like one."""

import tracemalloc
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import kernels
from fpdb.documents import similarity
from fpdb.documents.layout import header_for, layout
from fpdb.documents.lookup import Search
from fpdb.documents.prepare import Preparer
from fpdb.documents.similarity import Alike
from fpdb.fingerprint.sketches import one_jaccard, standard_error
from fpdb.joins import kept_rows, selection
from fpdb.joins.clusters import clustering_of
from fpdb.joins.columns import GrowingColumn, GrowingTexts, Room
from fpdb.joins.fetched_texts import FetchedTexts
from fpdb.joins.pairs import TextsInColumns
from fpdb.joins.rules import Rule
from fpdb.joins.selection import Selection
from fpdb.joins.shingle_sets import ShingleSets
from fpdb.scratch import scratch_folder
from fpdb.storage.block import Block, TextColumns
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
    return list(preparer.prepare(documents).rows())


def shingles_of(texts, preparer):
    """The shingles of texts; a ready fingerprint has none."""
    return preparer.recipe.shingles_many("" if isinstance(text, int) else text for text in texts)


def alike(index, search, one, other, sets, lose=None):
    """Whether a document resembles an earlier one: its similarity and distance, or nothing.

    Four standard errors above the limit, the similarity is estimated; else it is exact, and always
    where it matters how much of the document the other one lacks.
    """
    if one.fingerprint is None or other.fingerprint is None:
        same = one.fingerprint is other.fingerprint and one.digest == other.digest
        return (1.0, 0) if same and any(one.digest) else None
    apart = (one.fingerprint ^ other.fingerprint).bit_count()
    if search.similarity is None or not (one.sketch or one.digest):
        return (0.0, apart) if apart <= search.k and lose is None else None
    if not set(index.bands.of(one)) & set(index.bands.of(other)):
        return None
    if one.digest == other.digest:
        return 1.0, apart
    share, error = one_jaccard(one.sketch, other.sketch), standard_error(search.similarity)
    if share < search.similarity + 4 * error or lose is not None:
        if share < search.similarity - 3 * error:
            return None
        shingles, others = (set(some.tolist()) for some in sets)
        share = len(shingles & others) / len(shingles | others)
        if lose is not None and len(shingles - others) / len(shingles) > lose:
            return None
    return (share, apart) if share >= search.similarity else None


def by_definition(index, search, documents, sets, groups=None, lose=None):
    kept, nearest = [], {}
    for number, document in enumerate(documents):
        found = [
            (alike(index, search, document, documents[own], (sets[number], sets[own]), lose), own)
            for own in kept
            if groups is None or groups[own] == groups[number]
        ]
        found = [(each, own) for each, own in found if each]
        if found:
            nearest[number] = min(found, key=lambda f: (-f[0][0], f[0][1], documents[f[1]].key))
        else:
            kept.append(number)
    return kept, nearest


def held(room, numbers, sets):
    shingles = ShingleSets(room)
    for start in range(0, len(numbers), 7):
        part = numbers[start : start + 7]
        shingles.add(part, [sets[number] for number in part.tolist()])
    return shingles


@contextmanager
def selection_of(index, search, documents, memory=1 << 30, sets=None, lose=None, **columns):
    """A selection of documents, whose columns it gets a block at a time."""
    with scratch_folder() as scratch:
        room = Room(scratch, memory)
        texts = GrowingTexts(room, 64)
        shingles = None if sets is None else held(room, np.arange(len(documents)), sets)
        named = {name: GrowingColumn(room, column.dtype) for name, column in columns.items()}
        for name, column in columns.items():
            named[name].add(column)
        rule = Rule(lose=lose, **named)
        selected = Selection(index, search, texts, room, shingles, rule=rule)

        def choose(start, stop, known=False):
            texts.add(Block.of(documents[start:stop], 64))
            known, key_of = np.full(stop - start, known), lambda own: documents[own].key
            return selected.choose(np.arange(start, stop), known, key_of)

        yield selected, choose


def by_join(index, search, documents, size, memory, sets, read_once=False, **rule):
    nearest = {}

    def tell(numbers, choice):
        assert not choice.crowded.any()
        for place in (~choice.keepers & ~choice.is_open).nonzero()[0].tolist():
            share = 0.0 if np.isnan(choice.shares[place]) else float(choice.shares[place])
            own = int(choice.nearest[place])
            nearest[int(numbers[place])] = ((share, int(choice.distances[place])), own)

    at_hand = sets if read_once else None
    with selection_of(index, search, documents, memory, at_hand, **rule) as (selected, choose):
        for start in range(0, len(documents), size):
            stop = min(start + size, len(documents))
            tell(np.arange(start, stop), choose(start, stop))
        [doubtful] = selected.doubtful.nonzero()
        if len(doubtful):
            known, shingles = (
                np.zeros(len(doubtful), np.bool_),
                held(selected._room, doubtful, sets),
            )
            for numbers, choice in selected.decide_again(
                doubtful, known, shingles, lambda own: documents[own].key
            ):
                tell(numbers, choice)
        return selected.keepers.tolist(), nearest


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
    memory=st.sampled_from([0, 800_000, 1 << 30]),
    how=st.sampled_from([(0.8, 3), (0.5, 3), (0.95, 7), (None, 0), (None, 3), (None, 9)]),
    many=st.sampled_from([0, 2, 1 << 10]),
    compiled=st.booleans(),
    read_once=st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_kept_is_what_the_definition_keeps(
    texts, size, most, memory, how, many, compiled, read_once
):
    """In blocks of any size, fewer together if they have many pairs; in memory, in files, or both.

    Shingles are at hand from the beginning, or come once it is known whose are needed.
    """
    similarity, k = how
    preparer, search = preparer_of(similarity=similarity, k=k), Search(k, None, similarity)
    documents, sets = documents_of(texts, preparer), shingles_of(texts, preparer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", compiled and kernels.enabled)
        patch.setattr(selection, "_TOGETHER", size)
        patch.setattr(selection, "_MOST_PAIRS", most)
        patch.setattr(selection, "_FEW_PAIRS", most // 2)
        patch.setattr(selection, "PAIRS", min(most, 5))
        patch.setattr(kept_rows, "PAIRS", min(most, 5))
        patch.setattr(selection, "_FIRST_PAIRS", 2)
        patch.setattr(kept_rows, "_MANY_MET", many)
        patch.setattr(kept_rows, "_MERGED", min(most, 7))
        found = by_join(preparer.index, search, documents, size, memory, sets, read_once)
    assert found == by_definition(preparer.index, search, documents, sets)


@given(
    texts=corpora(),
    numbers=st.lists(st.integers(0, 2), min_size=40, max_size=40),
    lose=st.sampled_from([None, 0.0, 0.05, 0.1, 0.25, 1.0]),
    off=st.sampled_from(
        [("apart", lambda _, keys, __: keys), ("compares", lambda *_: slice(None))]
    ),
    size=st.sampled_from([1, 3, 50]),
    how=st.sampled_from([(0.8, 3), (0.5, 3), (None, 3)]),
    compiled=st.booleans(),
    read_once=st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_only_what_a_rule_lets_go_for_another_is_left_out(
    texts, numbers, lose, off, size, how, compiled, read_once
):
    """What loses little in one of its own group; bits don't show how much.

    Either of both keeps groups apart: that their members meet in no row, and aren't compared.
    """
    similarity, k = how
    lose = None if similarity is None else lose
    groups = numbers[: len(texts)]
    preparer, search = preparer_of(similarity=similarity, k=k), Search(k, None, similarity)
    documents, sets = documents_of(texts, preparer), shingles_of(texts, preparer)
    columns = {
        "groups": np.array(groups, np.uint64) << np.uint64(61),
        "sizes": np.array(list(map(len, sets)), np.int32),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", compiled and kernels.enabled)
        patch.setattr(Rule, *off)
        found = by_join(
            *(preparer.index, search, documents, size, 1 << 30, sets, read_once),
            lose=lose,
            **columns,
        )
    assert found == by_definition(preparer.index, search, documents, sets, groups, lose)


@given(
    held=st.lists(st.integers(0, 40), max_size=300),
    asked=st.lists(st.integers(0, 44), max_size=60),
    most=st.sampled_from([1, 40]),
)
def test_rows_are_found_without_kernels_as_with_them(held, asked, most):
    held, asked = (
        selection.number_rows(np.array(each, np.uint64) % np.uint64(most), np.arange(len(each)))
        for each in (held, asked)
    )
    with pytest.MonkeyPatch.context() as patch:
        sorted_rows = asked, held, held[::64].copy()
        found = [each.tolist() for each in kept_rows.meeting(*sorted_rows)]
        patch.setattr(kernels, "enabled", False)
        assert found == [each.tolist() for each in kept_rows.meeting(*sorted_rows)]
    rows, numbers = held & ~selection.PLACE, asked & ~selection.PLACE
    assert found == [[(rows < n).sum() for n in numbers], [(rows == n).sum() for n in numbers]]


@given(
    held=st.lists(st.integers(0, 9), max_size=120),
    asked=st.lists(st.integers(0, 9), max_size=40),
    compared=st.sampled_from([5, 1000]),
    room=st.sampled_from([1, 200]),
    seed=st.integers(0, 9),
)
@settings(max_examples=examples(100), deadline=None)
def test_the_kernel_finds_the_pairs_that_the_definition_finds(held, asked, compared, room, seed):
    """Also where it leaves off, because a number has a crowd or the pairs have no room."""
    dice = np.random.default_rng(seed)
    low = kept_rows.LowBits(*(dice.integers(0, 2**64, (120, 4), np.uint64) for _ in range(2)), 128)
    held, asked = (
        selection.number_rows(np.array(each, np.uint64), np.arange(len(each)))
        for each in (held, asked)
    )
    with scratch_folder() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows, "_MOST_MET", room)
        table = kept_rows.KeptRows(Room(scratch, 1 << 20), 1000, compared, rows_each=2)
        for start in range(0, len(held), 50):
            table.add(held[start : start + 50])
        found = []
        for enabled in (kernels.enabled, False):
            patch.setattr(kernels, "enabled", enabled)
            crowded = np.zeros(120, np.bool_)
            pairs = [
                pair
                for own, met in table.near(asked, crowded, low)
                for pair in zip(own.tolist(), met.tolist(), strict=True)
            ]
            found.append((sorted(pairs), crowded.tolist()))
    assert found[0] == found[1]


@given(
    held=st.lists(st.integers(0, 9), max_size=120),
    asked=st.lists(st.integers(0, 9), max_size=40),
    compared=st.sampled_from([None, 3, 1000]),
    many=st.sampled_from([0, 5]),
)
def test_a_document_that_meets_many_rows_is_compared_once_with_each(held, asked, compared, many):
    """With those that agree most often, if there is a limit, and of these with the first."""
    held, asked = (
        selection.number_rows(np.array(each, np.uint64), np.arange(len(each)) % 7)
        for each in (held, asked)
    )
    with scratch_folder() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", False)
        patch.setattr(kept_rows, "_MANY_MET", many)
        table = kept_rows.KeptRows(Room(scratch, 1 << 20), 1000, compared)
        for start in range(0, len(held), 50):
            table.add(np.sort(held[start : start + 50]))
        crowded = np.zeros(7, np.bool_)
        found = {place: [] for place in range(7)}
        for own, met in table.near(asked, crowded, None):
            for place, other in zip(own.tolist(), met.tolist(), strict=True):
                found[place].append(other)
    numbers = [
        [(row & ~selection.PLACE, int(row & selection.PLACE)) for row in rows]
        for rows in (asked, held)
    ]
    for place in range(7):
        rows = Counter(
            other
            for number, own in numbers[0]
            if own == place
            for same, other in numbers[1]
            if same == number
        )
        if rows.total() <= min(many, compared or many):
            assert Counter(found[place]) == rows
            continue
        best = sorted(rows, key=lambda other: (-rows[other], other))[:compared]
        assert sorted(found[place]) == sorted(best)
        assert crowded[place] == (compared is not None and len(rows) > compared)


def test_what_is_known_to_be_removed_isnt_compared_with():
    preparer = preparer_of(similarity=0.8, k=3)
    documents = documents_of([" ".join(WORDS[:40])] * 4, preparer)
    with selection_of(preparer.index, Search(3, None, 0.8), documents) as (selected, choose):
        assert not choose(0, 1, known=True).keepers.any()
        choice = choose(1, 4)
        assert selected.keepers.tolist() == [1]
        assert choice.nearest.tolist() == [-1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("most", [1, 1 << 22])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # The kept ones differ in four bits or five. The last one is as near to both: the first key.
        ([("c", 0b11), ("a", 0b1100), ("x", 0)], (1, 2)),
        ([("a", 0b11), ("c", 0b1100), ("x", 0)], (0, 2)),
        # It is nearer to the first, or to the second, which comes in its block.
        ([("c", 0b11), ("a", 0b111000), ("x", 0)], (0, 2)),
        ([("a", 0b111), ("c", 0b11000), ("x", 0)], (1, 2)),
    ],
)
def test_the_nearest_kept_one_by_hand(monkeypatch, size, most, rows, expected):
    monkeypatch.setattr(selection, "_MOST_PAIRS", most)
    index, search = preparer_of(similarity=None, k=3).index, Search(3, None, None)
    # One that is far from all comes first, so that a block of two ends between the others.
    documents = [Stored(0, key, bits, 1000) for key, bits in [("f", 0xFF << 40), *rows]]
    kept, nearest = by_join(index, search, documents, size, 1 << 30, [])
    place, apart = expected
    assert (kept, nearest) == ([0, 1, 2], {3: ((0.0, apart), 1 + place)})


@pytest.mark.parametrize("size", [1, 3])
def test_the_nearest_one_that_is_left_out_is_nobodys_nearest(size):
    index, search = preparer_of(similarity=None, k=3).index, Search(3, None, None)
    documents = [Stored(0, str(bits), bits, 1000) for bits in (0, 0b111, 0b110)]
    kept, nearest = by_join(index, search, documents, size, 1 << 30, [])
    assert (kept, nearest) == ([0], {1: ((0.0, 3), 0), 2: ((0.0, 2), 0)})


@pytest.mark.parametrize(("changed", "kept"), [(10, [0]), (11, [0, 1])])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("read_once", [False, True])
def test_shingles_decide_at_the_limit(size, changed, kept, read_once):
    """Of 98 shingles each, 88 of 108 are the same, which are 81 percent, or 87 of 109, which 79."""
    preparer = preparer_of(similarity=0.8, k=3)
    texts = [" ".join(WORDS[:100]), " ".join(WORDS[: 100 - changed] + WORDS[-changed:])]
    documents, sets = documents_of(texts, preparer), shingles_of(texts, preparer)
    search = Search(3, None, 0.8)
    found, _ = by_join(preparer.index, search, documents, size, 1 << 30, sets, read_once)
    assert found == kept


def test_to_compare_two_documents_takes_no_memory_for_the_others():
    count = 1 << 17
    words = np.arange(count, dtype=np.uint64)
    sketches = np.zeros((count, 128), np.uint8)
    texts = TextColumns(words, np.column_stack([words, words]), sketches, np.ones(count, np.bool_))
    tracemalloc.start()
    pairs = similarity.alike(
        *(texts, np.array([5, 7]), texts, np.array([5, 8])), least=0.8, bits=64
    )
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.first.tolist() == [5]
    assert most < count


def test_equal_texts_in_a_block_that_is_halved(monkeypatch):
    monkeypatch.setattr(selection, "_MOST_PAIRS", 1)
    preparer = preparer_of(similarity=0.8, k=3)
    documents = documents_of([" ".join(WORDS[:40])] * 5, preparer)
    kept, nearest = by_join(preparer.index, Search(3, None, 0.8), documents, 5, 1 << 30, [])
    assert (kept, nearest) == ([0], dict.fromkeys(range(1, 5), ((1.0, 0), 0)))


@pytest.mark.parametrize(("changed", "alike"), [(3, True), (4, False)])
@pytest.mark.parametrize("size", [1, 2])
def test_a_ready_fingerprint_resembles_a_text_within_k(size, changed, alike):
    preparer = preparer_of(similarity=0.8, k=3)
    [text] = documents_of([" ".join(WORDS[:40])], preparer)
    documents = [text, *documents_of([text.fingerprint ^ ((1 << changed) - 1)], preparer)]
    kept, nearest = by_join(preparer.index, Search(3, None, 0.8), documents, size, 1 << 30, [])
    assert (kept, nearest) == (([0], {1: ((0.0, 3), 0)}) if alike else ([0, 1], {}))


def test_more_documents_than_rows_can_name_are_refused(monkeypatch):
    monkeypatch.setattr(selection, "PLACE", np.uint64(3))
    preparer = preparer_of(similarity=0.8, k=3)
    documents = documents_of([" ".join(WORDS[at : at + 9]) for at in range(0, 60, 15)], preparer)
    with selection_of(preparer.index, Search(3, None, 0.8), documents) as (selected, choose):
        assert choose(0, 2).keepers.all()
        assert choose(2, 3).keepers.all()
        with pytest.raises(fpdb.InputError, match="more than 3 records"):
            choose(3, 4)
        assert selected.keepers.tolist() == [0, 1, 2]


@pytest.mark.parametrize("told", [False, True])
def test_who_is_left_out_is_open_only_if_the_nearest_one_is_wanted(told):
    """The second one may resemble the first, and so may stay; the third resembles both."""
    own, other, sure = np.array([1, 2, 2]), np.array([0, 0, 1]), np.array([False, True, True])
    pairs = Alike(own, other, np.ones(3), np.zeros(3, np.uint8), sure)
    choice = selection._Choice(None, own, sure, told, np.ones(3, np.bool_))
    selection._choose_in_order([pairs], choice)
    assert choice.keepers.tolist() == [True, True, False]
    assert choice.is_open.tolist() == [False, True, told]


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
    crowds = []
    with selection_of(index, search, documents) as (_, choose):
        for start in range(0, 100, 10):
            choice = choose(start, start + 10)
            assert choice.keepers.all()
            crowds += choice.crowded.tolist()
    assert crowds == [False] * 30 + [True] * 70
    monkeypatch.setattr(selection, "MOST_OF_A_BAND", 10_000)
    documents[31] = documents[0]
    for most, crowded in ((29, True), (30, False)):
        monkeypatch.setattr(selection, "MOST_COMPARED", most)
        with selection_of(index, search, documents) as (_, choose):
            assert not choose(0, 30).crowded.any()
            # The copy shares most bands with the first one, and so is still found.
            choice = choose(30, 32)
        assert choice.crowded.tolist() == [crowded, crowded]
        assert choice.keepers.tolist() == [True, False]


@given(texts=corpora(), similarity=st.sampled_from([0.5, 0.8, 0.95]), known=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_clusters_of_columns_are_those_of_a_database(tmp_path_factory, texts, similarity, known):
    texts = [text for text in texts if isinstance(text, str)]
    preparer = preparer_of(similarity=similarity, k=3)
    documents = documents_of(texts, preparer)
    columns = Block.of(documents, 64)
    compared = (~columns.short).nonzero()[0]
    texts_in_columns = TextsInColumns(columns, preparer.index.bands.shape, compared)
    by_number = texts.__getitem__ if known else None
    path = tmp_path_factory.mktemp("clusters") / "a.fpdb"
    with fpdb.create(path, similarity=similarity, keys="integer") as db:
        numbered = [each._replace(id=n, key=n) for n, each in enumerate(documents)]
        db.add_prepared(Block.of(numbered, db.plan.bits))
        expected = db.clustering(texts=by_number)
    at_hand = FetchedTexts(preparer.recipe, by_number) if by_number else None
    found = clustering_of(texts_in_columns, similarity, known=at_hand)
    assert found.estimated == expected.estimated == (0 if known else None)
    for column in ("ids", "firsts", "originals", "least", "shares"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist()
