"""Fingerprints that others computed: each number is a fact that fpdb has to reproduce."""

import math
import re
from collections import Counter

import pytest
import xxhash

import fpdb

STRING = "This is a test string for testing"
CHARIKAR = [
    (STRING, 64, 0x800D8E90E45CC488),
    (STRING, 128, 0x20302202800D8E90E45CC488),
    (STRING + " also", 64, 0xC00DBEB4E55CC7A8),
    (STRING + " also", 128, 0x203C2282C00DBEB4E55CC7A8),
    ("Hello ,World!!!", 64, 0x567FFF6E4FF237DF),
    ("Hello ,World!!!", 128, 0xE30DCE7D5DF7FFFA567FFF6E4FF237DF),
    ("the cat sat on the mat", 64, 0xFABBFF6B39CFADFF),
    ("the cat sat on the mat", 128, 0x324FABBFF6B39CFADFF),
    ("a", 64, 0x2E40DB1E0),
    ("a", 128, 0x2E40DB1E0),
    ("", 64, 0xFFFFFFFFFFFFFFFF),
    ("", 128, 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF),
    ("a a b", 64, 0x2E40DB1E0),
    ("a a b", 128, 0x2E40DB1E0),
]
ASCII_MT = [
    ("hello", 0x9055E268),
    ("hello world", 0xD255E208),
    ("The quick brown fox jumps over the lazy dog", 0x9A45E70D),
    ("The quick brown fox jumped over the lazy dog", 0x9245E70D),
    ("int main(){return 0;}", 0x64DCFBF),
]
NEWS_MD5 = [
    ("国务院 发布 通知", "国务院 今天 发布 关于 放假 的 通知 放假 三天", 0x5EAE6CB0CB7DBD17),
    ("the cat", "the cat sat on the mat", 0xDFF9E69F3A2DE8FF),
    ("", "a", 0xC0F1B6A831C399E2),
]
TITLE = "有/v 哪些/r 养/v 猫/n"
TAGGED_TITLE = [
    (f"{TITLE} 必须/d 知道/v 的/u 冷/a 知识/n ？/w", 0x62BEDE4D6C9BD4D6),
    (TITLE, 0xD8BEFE176CBFD9F6),
    ("猫/n " * 9 + "狗/n " * 7, 0x60FEFFDF77FF5A76),
]
SIMHASH_PY = [
    ("", 0xE9800998ECF8427E),
    ("aa", 0x086F24BA207A4912),
    ("aaaa", 0xD33F80C4663DC5E5),
    ("aaaaabb", 0xC31D80C46435C1E4),
    ("1", 0x0DCC509A6F75849B),
    ("My name is John", 0xB6E83556EAC91387),
    ("How are you? I AM fine. Thanks. And you?", 0xBFF3CD8A201E681A),
    ("你好　世界！　　呼噜。", 0xDB8C51C7172EA364),
    ("你好世界", 0x7AACD1C6112EE364),
    (
        "How are you i am fine.ablar ablar xyz blar blar blar blar blar blar blar than",
        0xF421C1E24B161C7A,
    ),
    ("How are you? I Am fine. blar blar blar blar blar Thanks.", 0x7521C1F341161C7A),
    ("This is simhash test.", 0x8A87048612660883),
]
SENTENCES = [
    "How are you? I Am fine. blar blar blar blar blar Thanks.",
    "How are you i am fine. blar blar blar blar blar than",
    "This is simhash test.",
    "How are you i am fine. blar blar blar blar blar thank1",
]


@pytest.mark.parametrize(("text", "bits", "expected"), CHARIKAR)
def test_charikar_gives_the_values_of_the_python_class(text, bits, expected):
    assert fpdb.recipe("charikar").with_bits(bits).fingerprint(text) == expected


@pytest.mark.parametrize(
    ("other", "distance", "ratio"),
    [(STRING + " also", 12, 0.9985455936894412), ("Hello ,World!!!", 82, 3.300694730308353e-11)],
)
def test_charikar_gives_the_distances_and_value_ratios_of_the_python_class(other, distance, ratio):
    recipe = fpdb.recipe("charikar")
    found = fpdb.compare(STRING, other, recipe=recipe)
    assert found.distance == distance
    assert found.value_ratio == pytest.approx(ratio, rel=1e-12)
    assert fpdb.distance(recipe.fingerprint(STRING), recipe.fingerprint(other)) == distance


@pytest.mark.parametrize(("text", "expected"), ASCII_MT)
def test_ascii_mt_gives_the_values_of_the_cpp_class(text, expected):
    assert fpdb.recipe("ascii-mt").fingerprint(text) == expected


@pytest.mark.parametrize(("title", "content", "expected"), NEWS_MD5)
def test_news_md5_gives_the_values_of_the_news_script(title, content, expected):
    assert fpdb.recipe("news-md5").fingerprint(f"{content}\n{title}") == expected


@pytest.mark.parametrize(("terms", "expected"), TAGGED_TITLE)
def test_tagged_title_gives_the_values_of_the_java_class(terms, expected):
    segments = [(word, tag) for word, _, tag in (term.partition("/") for term in terms.split())]
    assert fpdb.recipe("tagged-title").fingerprint_segments(segments) == expected


@pytest.mark.parametrize(("text", "expected"), SIMHASH_PY)
def test_simhash_py_gives_the_values_of_the_package(text, expected):
    assert fpdb.recipe("simhash-py").fingerprint(text) == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (dict.fromkeys(("aaa", "bbb"), 1), 57087923692560392),
        ({str(number): 1 for number in range(500)}, 7984652473404407437),
        ({str(number): 50 * number for number in range(500)}, 3372825719632739723),
    ],
)
def test_simhash_py_gives_the_values_that_the_package_asserts_for_features(features, expected):
    assert fpdb.recipe("simhash-py").fingerprint_features(features) == expected


def tfidf_row(documents, index):
    """Weigh one document: counts times smooth idf, scaled to length 1."""
    counts = [Counter(re.findall(r"\b\w\w+\b", text.lower())) for text in documents]
    row = {}
    for word, count in counts[index].items():
        holding = sum(word in others for others in counts)
        row[word] = count * (math.log((1 + len(documents)) / (1 + holding)) + 1)
    length = math.hypot(*row.values())
    return {word: weight / length for word, weight in row.items()}


def test_simhash_py_gives_the_value_that_the_package_asserts_for_tf_idf_weights():
    row = tfidf_row(SENTENCES, 0)
    assert fpdb.recipe("simhash-py").fingerprint_features(row) == 17583409636488780916


def recipe_whose_digests_are(monkeypatch, digests, **parts):
    """A recipe that signs digests given by hand instead of hashing its features."""
    monkeypatch.setattr(
        fpdb.Hash,
        "digest",
        lambda _self, bits: lambda feature: digests[feature].to_bytes(bits // 8, "little"),
    )
    return fpdb.Recipe("by-hand", clean=(), segment="whitespace", **parts)


def test_the_hyperplane_example_signs_001(monkeypatch):
    signs = [(1, -1, 1), (-1, 1, 1), (1, -1, -1), (-1, -1, 1), (1, 1, -1)]
    weights = [1, 2, 0, 3, 0]
    # The first component is the highest of the three bits.
    digests = {
        f"d{number}": sum((sign > 0) << (2 - place) for place, sign in enumerate(row))
        for number, row in enumerate(signs)
    }
    recipe = recipe_whose_digests_are(monkeypatch, digests)
    features = {f"d{number}": weight for number, weight in enumerate(weights)}
    assert f"{recipe.fingerprint_features(features):03b}" == "001"
    assert recipe.explain(features).votes[:3] == (6, -2, -4)


@pytest.mark.parametrize(
    ("hashes", "expected"),
    [
        ([], 0),
        ([0xDEADBEEF] * 100, 0xDEADBEEF),
        ([16045690984833335023, 2401053088876216592], 0),
        ([43981, 48350, 52719], 44495),
    ],
)
def test_unweighted_majorities_agree_with_seomoz_simhash(monkeypatch, hashes, expected):
    digests = {f"h{number}": value for number, value in enumerate(hashes)}
    recipe = recipe_whose_digests_are(monkeypatch, digests, grams=fpdb.Grams(minimum=0))
    assert recipe.fingerprint_segments(list(digests)) == expected
    assert recipe.fingerprint_features(dict.fromkeys(digests, 1.0)) == expected


def test_the_wayback_service_s_value_follows_from_its_hashes(monkeypatch):
    features = {"two": 2, "three": 3, "one": 1}
    digests = {feature: xxhash.xxh64_intdigest(feature.encode()) for feature in features}
    recipe = recipe_whose_digests_are(monkeypatch, digests)
    assert recipe.fingerprint_features(features) == 1194485672667776276
