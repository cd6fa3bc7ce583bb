"""The kernel of Chinese cuts as jieba does, by jieba's own dictionary and by any other."""

import io
import itertools
import random
from array import array

import jieba
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples
from twins import defined

import fpdb
from fpdb import kernels
from fpdb.fingerprint import segmentation
from fpdb.fingerprint.segmentation import CUTS

HAN = st.text(
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF)
    | st.characters(min_codepoint=0x3400, max_codepoint=0x4DBF)
    | st.characters(min_codepoint=0xF900, max_codepoint=0xFAFF, exclude_categories=("Cn",))
    | st.sampled_from("的一是不了人我在有他这中大来上国\n 𠀀ab1_"),
    max_size=60,
)
COMMON = st.text(st.sampled_from("的一是不了人我在有他这中大来上国地年时分会家可下而过子说产"))
MIXED = st.text(
    st.sampled_from("中国新闻的 abc_12.,！\n\t%&+#é😀\u3007々ー가\ud800\x00"), max_size=50
)
LONGEST = 1 << 14


def by_jieba(text):
    with defined():
        return CUTS["jieba"](text)


@pytest.fixture(scope="module")
def dictionary():
    return [word for word, count in segmentation.jieba_tokenizer().FREQ.items() if count]


def lifelike_texts(dictionary, count):
    """Texts of dictionary words, numbers, Latin, punctuation, traditional and rare Han."""
    source = random.Random(5)
    common = ["的", "了", "在", "是", "和", "一个", "我们", "中国", "发展", "没有", "问题"]
    others = ["iPhone 15", "2024年", "3.14%", "Windows", "C++", "https://a.cn/b?c=1", "No.1"]
    marks = ["，", "。", "！", "？", "、", "“", "”", " ", "\n", "——", "…", "（", "）", ", ", ". "]
    traditional = ["臺灣", "經濟", "發展", "國務院", "學習", "電腦", "這個", "說話", "龍門"]
    rare = ["㐀", "䶵", "鿕", "龥", "𠀀", "𪚥", "豈", "〇", "々", "囧", "犇", "喆喆"]
    for _ in range(count):
        pieces = []
        for _ in range(source.randrange(5, 120)):
            kind = source.random()
            words = dictionary if kind < 0.5 else common if kind < 0.7 else marks
            if kind > 0.85:
                words = source.choice([others, traditional, rare])
            pieces.append(source.choice(words))
        yield "".join(pieces)


def test_lifelike_texts(dictionary):
    texts = list(lifelike_texts(dictionary, 400))
    assert len(set(texts)) == 400
    for text in texts:
        assert CUTS["jieba"](text) == by_jieba(text)


@pytest.mark.full
def test_every_word_of_the_dictionary_and_its_neighbours(dictionary):
    words = [word for word in dictionary if segmentation._HAN_RUN.fullmatch(word)]
    source = random.Random(6)
    for text in (
        "\n".join(words),
        "\n".join(map("".join, itertools.pairwise(words))),
        "".join(source.sample(words, 50_000)),
    ):
        assert CUTS["jieba"](text) == by_jieba(text)


def test_every_han_character():
    every = [chr(code) for code in range(0x3400, 0xFB00) if segmentation._HAN_RUN.match(chr(code))]
    text = "".join(f"{han}的{han}" for han in every)
    assert CUTS["jieba"](text) == by_jieba(text)


@settings(max_examples=examples(200))
@given(text=HAN | COMMON | MIXED | st.text())
@example(text="喆喆㐀㐁𠀀龥鿕豈更")
def test_any_text(text):
    assert CUTS["jieba"](text) == by_jieba(text)


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 50_000])
def test_a_long_run_is_cut_in_the_same_pieces(length):
    common = "的一是不了人我在有他这中大来上国地年时分会家可下而过子说产㐀"
    source = random.Random(length)
    run = "".join(source.choices(common, k=length))
    for text in (run, f"中国\n{run}\n国家", f"{run[:9]}，{run}！{run[5:]}"):
        assert CUTS["jieba"](text) == by_jieba(text)


WORDS = st.dictionaries(
    st.text(st.sampled_from("中国人民a㐀"), min_size=1, max_size=5), st.sampled_from([0, 1, 2, 4])
)


# So few words, of so few frequencies, that many paths are equally probable.
@settings(max_examples=examples(400))
@given(WORDS, st.text(st.sampled_from("中国人民㐀\n"), max_size=30))
def test_any_dictionary_decides_a_tie_as_jieba_does(words, text):
    words |= {"的": 3}
    lines = "".join(f"{word} {count} n\n" for word, count in words.items()).encode()
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(io.BytesIO(lines))
    tokenizer.initialized = True
    found = kernels.chinese.cut(kernels.chinese.make_table(lines), text)
    assert found == tokenizer.lcut(text, HMM=False)


def test_the_last_of_several_frequencies_of_a_word_counts():
    lines = "中国 9 n\n中 1 n\n国 1 n\n中国 0 n\n".encode()
    assert kernels.chinese.cut(kernels.chinese.make_table(lines), "中国") == ["中", "国"]


@pytest.mark.parametrize(
    "line",
    ["中国", "中国 ", "中国 x n", " 3 n", "中国 3n", "中国 1234567890123 n", "中" * 1025 + " 3 n"],
)
def test_a_dictionary_of_another_form_has_no_table(line):
    with pytest.raises(ValueError, match="found the line"):
        kernels.chinese.make_table(f"国 3 n\n{line}\n".encode())


@pytest.mark.parametrize("lines", [b"", "中国 0 n\n".encode()])
def test_a_dictionary_without_words_has_no_table(lines):
    with pytest.raises(ValueError, match="found no word"):
        kernels.chinese.make_table(lines)


def test_without_a_table_jieba_itself_cuts(tmp_path, monkeypatch):
    spec = segmentation.importlib.util.find_spec("jieba")
    monkeypatch.setattr(spec, "origin", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(segmentation.importlib.util, "find_spec", lambda _: spec)
    for content in (None, b"word\n"):
        if content:
            (tmp_path / "dict.txt").write_bytes(content)
        segmentation.dictionary_table.cache_clear()
        assert segmentation.dictionary_table() is None
        assert CUTS["jieba"]("世界新闻") == ["世界", "新闻"]
    segmentation.dictionary_table.cache_clear()


@pytest.mark.parametrize("numbers", [[], [1], [1, 2], [1, 2, 3, 4], [2**63, 2**63, 0]])
def test_another_table_is_an_error(numbers):
    with pytest.raises(ValueError, match="another table"):
        kernels.chinese.cut(array("Q", numbers), "中国")


@pytest.mark.parametrize("bits", [64, 128])
def test_fingerprints_are_the_same_without_kernels(bits):
    text = "国务院今天发布了关于放假的通知，放假三天。The news is out: 臺灣 2024年 iPhone㐀𠀀"
    recipe = fpdb.recipe("words").with_bits(bits)
    found = recipe.fingerprint(text)
    with defined():
        assert recipe.fingerprint(text) == found
