"""Precision and recall, against a count of all pairs of a generated corpus, one by one."""

import random
import warnings
from itertools import combinations

import pytest

import fpdb
from fpdb.errors import InputError
from fpdb.fingerprint import sketches
from fpdb.joins import evaluation, exact

SMALL = fpdb.recipe("words").replace(name="small", grams=fpdb.Grams(minimum=4), similarity=0.8)


def corpus(seed, count=60):
    """Make texts, most of them changed copies of others; some equal, some short, one empty."""
    generator = random.Random(seed)
    words = [a + b + c for a in "bdgklm" for b in "aeiou" for c in "nrst"]
    signs = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
    texts = ["", "two words", "three more words"]
    while len(texts) < count:
        kind = generator.random()
        if kind < 0.65 and len(texts) > 5:
            old = generator.choice(texts).split(" ")
            for _ in range(generator.choice([0, 1, 1, 2, 4])):
                old[generator.randrange(len(old))] = generator.choice(words)
            texts.append(" ".join(old))
        elif kind < 0.8:
            texts.append("".join(generator.choices(signs, k=generator.randrange(20, 90))))
        else:
            texts.append(" ".join(generator.choices(words, k=generator.randrange(5, 70))))
    return [fpdb.Document(f"d{number}", text) for number, text in enumerate(texts)]


def all_pairs(recipe, documents):
    """Give the similarity and equality of all pairs by definition."""
    sets = [set(recipe.shingles(document.text).tolist()) for document in documents]
    for one, other in combinations(range(len(documents)), 2):
        first, second = sets[one], sets[other]
        if first or second:
            equal = first == second
        else:
            equal = documents[one].text.split() == documents[other].text.split()
        jaccard = len(first & second) / len(first | second) if first | second else 0.0
        yield one, other, jaccard, equal


def expected(recipe, documents, pairs, k=64, similarity=None):
    """Count by definition what is reported, right, wrong and found; and what there is to find.

    With a similarity, two texts are reported if their sketches agree in all bins of a band and
    estimate it.
    """
    bands = fpdb.plans(64, 3, len(documents), similarity=0.8)[0].bands
    batch = recipe.batch([document.text for document in documents], sketches=True)
    fingerprints = [fpdb.fingerprint.to_int(each) for each in batch.fingerprints]
    counts = dict.fromkeys(("equal", "reported", "right", "wrong", "found"), 0)
    true = 0
    for one, other, jaccard, equal in pairs:
        true += not equal and jaccard >= 0.8
        if batch.short[one] or batch.short[other]:
            continue
        if similarity is None:
            if fpdb.distance(fingerprints[one], fingerprints[other]) > k:
                continue
        elif documents[one].text != documents[other].text:
            rows = batch.sketches[one : one + 1], batch.sketches[other : other + 1]
            if not sketches.sketch_jaccard(*rows)[0] >= sketches.least_estimate(similarity):
                continue
            bins = [[f"{byte:02x}"[::-1] for byte in row[0].tolist()] for row in rows]
            first, second = map("".join, bins)
            starts = range(0, bands.count * bands.bins, bands.bins)
            if not any(
                first[at : at + bands.bins] == second[at : at + bands.bins] for at in starts
            ):
                continue
        if equal:
            counts["equal"] += 1
            continue
        counts["reported"] += 1
        counts["right"] += jaccard >= 0.7
        counts["wrong"] += jaccard < 0.5
        counts["found"] += jaccard >= 0.8
    return counts, true


def counts_of(rating):
    return {
        name: getattr(rating, name) for name in ("equal", "reported", "right", "wrong", "found")
    }


@pytest.mark.parametrize("recipe", [SMALL, SMALL.with_bits(128), fpdb.recipe("char-4")])
@pytest.mark.parametrize("seed", range(3))
def test_all_counts_are_those_of_a_comparison_one_by_one(recipe, seed):
    documents = corpus(seed)
    found = fpdb.evaluate(documents, recipes=[recipe], k=[0, 3, 7, 20], similarity=0.8)
    pairs = list(all_pairs(recipe, documents))
    [quality] = found.recipes
    assert [rating.k for rating in quality.ratings] == [0, 3, 7, 20]
    for rating in quality.ratings:
        counts, true = expected(recipe, documents, pairs, rating.k)
        assert (counts_of(rating), found.true) == (counts, true)
    assert quality.similar.k is None
    assert counts_of(quality.similar) == expected(recipe, documents, pairs, similarity=0.8)[0]
    assert quality.similar.found
    assert found.equal == sum(equal for *_, equal in pairs)
    assert found.exact
    assert found.documents == len(documents)


@pytest.mark.parametrize("similarity", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("most", [1000, 3])
def test_similar_pairs_are_those_of_a_database(tmp_path, monkeypatch, similarity, most):
    monkeypatch.setattr("fpdb.joins.pairs.MOST_MET", most)
    documents = corpus(7, 200)
    words = [f"word{number}" for number in range(100)]
    for number in range(12):
        words[number * 7] = f"other{number}"
        documents.append(fpdb.Document(f"crowd {number}", " ".join(words)))
    with fpdb.create(tmp_path / "db", recipe=SMALL, similarity=similarity, capacity=200) as db:
        list(db.add_many(documents))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fpdb.IncompleteWarning)
            reported = {(pair.key, pair.other) for pair in db.pairs()}
    listed = [(*pair, True) for pair in reported]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", fpdb.IncompleteWarning)
        found = fpdb.evaluate(documents, recipes=[SMALL], k=[3], similarity=similarity)
        again = fpdb.evaluate(documents, listed, recipes=[SMALL], similarity=similarity)
    assert bool(caught) == (most == 3)
    rating = found.recipes[0].similar
    assert rating.equal + rating.reported == len(reported) > 15
    assert again.recipes[0].similar.recall == 1
    assert again.recipes[0].similar.precision == 1


def test_equal_texts_without_a_sketch_are_similar():
    text = "a b c d e f g h i j"
    texts = [text, text, "0 1 2 3 4 5 6 7 8 9"]
    unspaced = SMALL.replace(name="bare", clean=("tags", "unicode"))
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    [quality] = fpdb.evaluate(documents, recipes=[unspaced]).recipes
    assert quality.similar.equal == 1


def test_shares_follow_from_the_counts():
    found = fpdb.evaluate(corpus(5), recipes=[SMALL], k=[20])
    [rating] = found.recipes[0].ratings
    assert rating.wrong
    assert rating.right
    assert rating.found < rating.right
    assert rating.precision == rating.right / (rating.right + rating.wrong)
    assert rating.recall == rating.found / found.true
    assert rating.f1 == pytest.approx(2 / (1 / rating.precision + 1 / rating.recall))


def test_of_nothing_there_is_no_share():
    found = fpdb.evaluate([fpdb.Document("a", "text"), fpdb.Document("b", "other")])
    rating = found.recipes[0].ratings[3]
    assert (rating.precision, rating.recall, rating.f1) == (None, None, None)
    assert fpdb.evaluate([]).recipes[0].bit_shares == (0.0,) * 64
    assert fpdb.evaluate(corpus(8), similarity=None).recipes[0].similar is None


def test_the_similarity_is_that_of_each_recipe():
    found = fpdb.evaluate(corpus(8), recipes=["web", "submissions", "words"]).recipes
    assert [each.similarity for each in found] == [0.8, 0.7, None]
    assert [each.similar is None for each in found] == [False, False, True]


def test_listed_pairs_are_the_truth_and_all_others_differ():
    documents = corpus(1)
    exact = [(one, other, j, e) for one, other, j, e in all_pairs(SMALL, documents) if j >= 0.5]
    listed = [(f"d{one}", f"d{other}", jaccard) for one, other, jaccard, _ in exact]
    found = fpdb.evaluate(documents, listed, recipes=[SMALL], k=[3, 9])
    same = fpdb.evaluate(documents, recipes=[SMALL], k=[3, 9])
    for one, other in zip(found.recipes[0].ratings, same.recipes[0].ratings, strict=True):
        # A list may hold pairs of one similarity 1 whose texts differ: these aren't equal then.
        assert one.wrong == other.wrong
        assert one.reported + one.equal == other.reported + other.equal
    assert not found.exact


def test_distances_of_true_and_other_pairs_and_the_balance_of_bits():
    documents = corpus(4)
    found = fpdb.evaluate(documents, recipes=[SMALL])
    [quality] = found.recipes
    batch = SMALL.batch([document.text for document in documents])
    pairs = list(all_pairs(SMALL, documents))
    usable = [
        (batch.fingerprints[one], batch.fingerprints[other], jaccard)
        for one, other, jaccard, equal in pairs
        if not equal and not batch.short[one] and not batch.short[other]
    ]
    for distances, kept in (
        (quality.true_distances, lambda jaccard: jaccard >= 0.8),
        (quality.other_distances, lambda jaccard: jaccard < 0.5),
    ):
        counted = [0] * 65
        for one, other, jaccard in usable:
            if kept(jaccard):
                counted[fpdb.distance(int(one), int(other))] += 1
        assert list(distances) == counted
    assert quality.short == batch.short.sum()
    for bit, share in enumerate(quality.bit_shares):
        ones = [int(each) >> bit & 1 for each in batch.fingerprints[~batch.short]]
        assert share == pytest.approx(sum(ones) / len(ones))


def test_other_pairs_of_a_larger_corpus_are_a_sample(monkeypatch):
    monkeypatch.setattr(evaluation, "_SAMPLED", 500)
    [quality] = fpdb.evaluate(corpus(6), recipes=[SMALL]).recipes
    assert 400 < sum(quality.other_distances) <= 500


def test_the_first_recipe_cleans_the_texts_of_the_truth():
    page = "<p>the quick brown fox jumps over the lazy dog again and again</p>"
    texts = [page, page.replace("<p>", "<p class='some other thing of many words here'>")]
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    tagless = SMALL.replace(name="tagless", clean=("tags", "unicode"))
    assert fpdb.evaluate(documents, recipes=[tagless, SMALL]).equal == 1
    assert fpdb.evaluate(documents, recipes=[SMALL, tagless]).equal == 0


A, B = fpdb.Document("a", "text"), fpdb.Document("b", "other")


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([A, B], {"pairs": [("a", "c", 0.5)]}, "document 'c', which isn't there"),
        ([A, B], {"pairs": [("a", "b", 1.5)]}, "expected 0 to 1"),
        ([A, B], {"pairs": [("a", "b", float("nan"))]}, "expected 0 to 1"),
        ([A, B], {"pairs": [("a", "b", 0.5), ("b", "a", 0.6)]}, "similarities of 'b' and 'a'"),
        ([fpdb.Document("a", None)], {}, "document 'a' has no text"),
        (["a text"], {}, "found 'a text', expected a document"),
        ([A, A], {}, "two documents with the key 'a'"),
        ([], {"recipes": []}, "no recipe"),
        ([], {"k": []}, "expected some from 0"),
        ([], {"k": [-1]}, "expected some from 0"),
        ([], {"k": [65]}, "at most 64"),
        ([], {"similarity": 1.5}, "found similarity 1.5"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(documents, options, message):
    with pytest.raises(InputError, match=message):
        fpdb.evaluate(documents, **options)


@pytest.mark.parametrize("limits", [{"truth_from": 0.6}, {"wrong_below": 0}])
def test_thresholds_are_in_order(limits):
    with pytest.raises(InputError):
        fpdb.Thresholds(**limits)


def test_thresholds_decide_what_is_true_right_and_wrong():
    documents = corpus(1)
    pairs = [pair for pair in all_pairs(SMALL, documents) if not pair[3]]
    limits = fpdb.Thresholds(truth_from=0.9, right_from=0.6, wrong_below=0.4)
    found = fpdb.evaluate(documents, recipes=[SMALL], k=[64], thresholds=limits)
    [rating] = found.recipes[0].ratings
    short = SMALL.batch([document.text for document in documents]).short
    seen = [jaccard for one, other, jaccard, _ in pairs if not short[one] and not short[other]]
    assert found.thresholds == limits
    assert found.true == sum(jaccard >= 0.9 for *_, jaccard, _ in pairs)
    assert rating.right == sum(jaccard >= 0.6 for jaccard in seen)
    assert rating.wrong == sum(jaccard < 0.4 for jaccard in seen)


@pytest.mark.parametrize(
    ("module", "name", "most", "message"),
    [
        (evaluation, "MOST_DOCUMENTS", 3, "more than 3 documents"),
        (exact, "MOST_ELEMENTS", 100, "more than 100 shingles"),
    ],
)
def test_too_many_documents_and_shingles_are_refused(monkeypatch, module, name, most, message):
    monkeypatch.setattr(module, name, most)
    with pytest.raises(InputError, match=message) as error:
        fpdb.evaluate(corpus(1))
    assert error.value.hint
