"""The step t2s: texts in traditional and in simplified characters get equal fingerprints."""

import importlib
import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fpdb
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.segmentation import simplify_chinese

TRADITIONAL = (
    "圖書館從下個月開始延長開放時間。週末晚上，學生可以在閱覽室裡讀書到十點，"
    "但是借書的櫃檯仍然在六點關門。館長說，這個決定是聽了許多讀者的意見以後才做的。"
)
SIMPLIFIED = (
    "图书馆从下个月开始延长开放时间。周末晚上，学生可以在阅览室里读书到十点，"
    "但是借书的柜台仍然在六点关门。馆长说，这个决定是听了许多读者的意见以后才做的。"
)
BOTH = [TRADITIONAL, SIMPLIFIED]


def with_step(name):
    recipe = fpdb.recipe(name)
    return recipe.replace(name=f"{name}-t2s", clean=(*recipe.clean, "t2s"))


@pytest.fixture
def loaded_anew():
    """Load the converter again in the test, and again after it."""
    segmentation._opencc.cache_clear()
    yield
    segmentation._opencc.cache_clear()


@pytest.mark.parametrize("name", ["web", "web-128", "words", "char-4"])
def test_both_scripts_have_one_fingerprint_and_one_sketch_with_the_step_only(name):
    without = fpdb.recipe(name).batch(BOTH, sketches=True)
    assert without.fingerprints[0].tolist() != without.fingerprints[1].tolist()
    assert without.sketches[0].tolist() != without.sketches[1].tolist()
    recipe = with_step(name)
    batch = recipe.batch(BOTH, sketches=True)
    assert batch.fingerprints[0].tolist() == batch.fingerprints[1].tolist()
    assert batch.sketches[0].tolist() == batch.sketches[1].tolist()
    assert fpdb.compare(*BOTH, recipe=recipe).shingle_jaccard == 1
    assert fpdb.compare(*BOTH, recipe=fpdb.recipe(name)).shingle_jaccard < 0.2
    assert recipe.id != fpdb.recipe(name).id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRADITIONAL, SIMPLIFIED),
        (SIMPLIFIED, SIMPLIFIED),
        ("乾隆皇帝的餅乾", "乾隆皇帝的饼干"),  # the same character, by the words around it
        ("Café ﬁn, дом, かな", "Café ﬁn, дом, かな"),
        ("plain text", "plain text"),
        ("\x00漢\x00", "\x00汉\x00"),
        ("", ""),
    ],
)
def test_traditional_characters_become_simplified(text, expected):
    assert simplify_chinese(text) == expected


@given(st.text(st.sampled_from("乾隆餅漢aé\ud800\udfff\ud83d\ude00\uffff😀 ")))
@example("餅\ud800乾\uffff漢\udfff")
def test_surrogates_stay_and_separate_what_is_converted(text):
    parts = re.split("([\ud800-\udfff\uffff])", text)
    parts[::2] = map(simplify_chinese, parts[::2])
    assert simplify_chinese(text) == "".join(parts)


def test_no_character_becomes_several():
    # A text has as many characters after the step, so it is as large as the recipe allows.
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    text = "\n".join(each for each in characters if not "\ud800" <= each <= "\udfff")
    assert [*map(len, simplify_chinese(text).split("\n"))] == [*map(len, text.split("\n"))]


def test_a_file_in_the_working_directory_is_not_read(tmp_path, monkeypatch, loaded_anew):
    for name in ("t2s.json", "t2s", "TSPhrases.ocd2", "TSCharacters.ocd2"):
        (tmp_path / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert simplify_chinese(TRADITIONAL) == SIMPLIFIED


@pytest.mark.parametrize("other", [False, True])
def test_without_the_package(tmp_path, monkeypatch, loaded_anew, other):
    if other:  # another package that is imported by this name
        (tmp_path / "opencc").mkdir()
        (tmp_path / "opencc" / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "opencc", raising=False)
        importlib.invalidate_caches()
    else:
        monkeypatch.setitem(sys.modules, "opencc", None)
    recipe = with_step("web")
    assert recipe.id
    for text in (TRADITIONAL, "an English text needs it as well, so that nobody is surprised"):
        with pytest.raises(fpdb.MissingExtraError) as caught:
            recipe.fingerprint(text)
        assert "the package OpenCC, which isn't installed" in str(caught.value)
        assert caught.value.hint == "pip install 'fpdb-store[chinese]'"
