"""Cutting: white space, words, Han runs by jieba, characters, parts of speech."""

import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fpdb
from fpdb.errors import InputError
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.segmentation import CUTS

HAN = st.text(
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF)
    | st.characters(min_codepoint=0x3400, max_codepoint=0x4DBF)
    | st.characters(min_codepoint=0xF900, max_codepoint=0xFAFF, exclude_categories=("Cn",))
    | st.sampled_from("的一是不了人我在有他这中大来上国\n 𠀀ab1_"),
    max_size=60,
)
MIXED = st.text(
    st.sampled_from("中国新闻的 abc_12.,！\n\t%&+#é😀\u3007々ー가\ud800\x00"), max_size=50
)


def test_a_text_too_long_to_be_tagged_is_a_clear_error():
    assert fpdb.recipe("tagged-title").features("word " * 1_000)
    with pytest.raises(InputError, match="5,001 characters to tag, expected at most 5,000"):
        fpdb.recipe("tagged-title").fingerprint("猫" * 5_001)


@given(HAN | MIXED | st.text(max_size=60))
@example("中_文")
@example("中_")
@pytest.mark.parametrize("name", ["jieba", "jieba-hmm"])
def test_segments_hold_every_word_character_in_its_order(name, text):
    expected = "".join(re.findall(r"\w|[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]", text))
    assert "".join(CUTS[name](text)) == expected


@given(HAN | MIXED | st.text())
def test_words_are_runs_of_word_characters(text):
    assert CUTS["words"](text) == re.findall(r"\w+", text)


def test_mixed_text_is_cut_by_jieba_and_words():
    text = "Hello，世界新闻 news2024年COVID-19疫情_x"
    expected = ["Hello", "世界", "新闻", "news2024", "年", "COVID", "19", "疫情", "_x"]
    assert CUTS["jieba"](text) == expected


def test_hmm_finds_words_that_the_dictionary_lacks():
    text = "他来到了网易杭研大厦"
    assert CUTS["jieba-hmm"](text) == ["他", "来到", "了", "网易", "杭研", "大厦"]
    assert CUTS["jieba"](text) == ["他", "来到", "了", "网易", "杭", "研", "大厦"]


def test_hmm_cuts_many_short_runs_as_jieba_does():
    runs = ["他来到了网易杭研大厦", "小明硕士毕业于中国科学院计算所", "杭研"] * 200
    expected = [word for run in runs for word in segmentation.jieba_tokenizer().lcut(run, HMM=True)]
    assert CUTS["jieba-hmm"]("，".join(runs)) == expected


def test_tags_are_mapped_onto_nouns_and_punctuation():
    tagged = CUTS["jieba-tags"]("北京的猫知道？Linux 3.14 ，")
    assert ("北京", "n") in tagged  # jieba says ns
    assert ("猫", "n") in tagged
    assert ("的", "uj") in tagged
    assert ("？", "w") in tagged
    assert ("，", "w") in tagged
    assert all(tag != "w" for word, tag in tagged if any(map(str.isalnum, word)))


def test_tagged_title_drops_punctuation_and_caps_words():
    recipe = fpdb.recipe("tagged-title")
    features = recipe.features(
        "<b>猫</b>，" + "猫，" * 20 + "有哪些养猫必须知道的冷知识？ &amp;nbsp;"
    )
    assert features["猫"] == 6
    assert "，" not in features
    assert "？" not in features
    assert set("".join(features)) == set("猫有哪些养必须知道的冷知识")


def test_part_of_speech_weights_add_up():
    weights = fpdb.Weights(tags=(("n", 2.5), ("w", 0.0), ("v", 0.5)), cap=3)
    recipe = fpdb.Recipe("own", segment="jieba-tags", weights=weights)
    pairs = [("猫", "n"), ("养", "v"), ("？", "w"), ("猫", "n"), ("养", "n"), ("好", "a")]
    heavy, light = (fpdb.Recipe("x", clean=(), segment="whitespace"),) * 2
    expected = {"猫": 5.0, "养": 3.0, "好": 1.0}
    assert recipe.fingerprint_segments(pairs) == heavy.fingerprint_features(expected)
    assert recipe.fingerprint_segments([("猫", "n")] * 9) == light.fingerprint_features({"猫": 7.5})
    assert recipe.features("猫，猫，猫，猫") == {"猫": 7.5}


@pytest.mark.process
def test_only_words_of_chinese_load_a_dictionary():
    script = """
import fpdb, sys
from fpdb.fingerprint import segmentation
english, chinese = ["an English text", "naïve café"], ["中文新闻"]
for name, texts in (("words", english), ("web", chinese), ("words", chinese)):
    fpdb.recipe(name).batch(texts)
    table = segmentation.dictionary_table.cache_info().currsize
    print("jieba" in sys.modules, table == fpdb.kernels_available)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    kernels = fpdb.kernels_available
    assert done.stdout.splitlines() == [
        *[f"False {not kernels}"] * 2,
        f"{not kernels} True",
    ]


@pytest.mark.slow("it loads jieba's dictionary twice")
def test_fpdb_s_dictionary_can_t_be_changed_through_jieba():
    import jieba

    before = CUTS["jieba-hmm"]("某某公司新词汇测试")
    jieba.add_word("公司新词汇测试", 10**9)
    try:
        assert CUTS["jieba-hmm"]("某某公司新词汇测试") == before
    finally:
        jieba.del_word("公司新词汇测试")


def test_jieba_s_own_idf_table_weighs_chinese_words():
    recipe = fpdb.Recipe("own", weights=fpdb.Weights(idf="jieba"))
    table = recipe.weights.idf_table().values
    features = recipe.features("中国新闻 qwertyuiop")
    assert features["中国"] == table["中国"]
    assert features["qwertyuiop"] == sorted(table.values())[len(table) // 2]
