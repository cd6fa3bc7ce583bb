"""Cleaning: what each step drops and keeps, and that no text makes it slow."""

import html
import re
import time
import unicodedata

import pytest
from hostile_inputs import HARD
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.fingerprint.segmentation import (
    STEPS,
    drop_header,
    drop_marks,
    fold_code,
    join_hyphenated,
    keep_letters,
    keep_word_characters,
    normalise_unicode,
    remove_special,
    strip_tags,
    strip_underscores,
)

INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b\u200f\u202a\u202e\u2060\u206f\ufeff"
TRICKY = st.sampled_from("aAeŚß\u0301\u0323\u0327ﬁÅ\u1100\u1161\u11a8中豈\u3099カｶﾞ가①½İ \n<&")


def is_mark(character):
    return all(map(unicodedata.combining, unicodedata.normalize("NFKD", character)))


def longest_mark_run(text):
    longest = run = 0
    for character in text:
        run = run + 1 if is_mark(character) else 0
        longest = max(longest, run)
    return longest


@settings(max_examples=examples(500))
@given(st.text() | st.text(TRICKY, max_size=60))
@example("a\u0301\u0323中\u0301b\u0301")
@example("中\u0301")
@example("\uf900\ufa0e豈")
def test_unicode_is_nfkc_and_case_folding(text):
    assume(not re.search(f"[{INVISIBLE}\u200b-\u200f\u202a-\u202e\u2060-\u206f]", text))
    assume(longest_mark_run(text) <= 30)
    assert normalise_unicode(text) == unicodedata.normalize("NFKC", text).casefold()


@pytest.mark.parametrize("character", INVISIBLE)
def test_invisible_characters_are_dropped(character):
    assert normalise_unicode(f"ne{character}ws{character * 20} 新{character}闻") == "news 新闻"


def test_an_invisible_character_doesn_t_keep_a_mark_from_its_letter():
    assert normalise_unicode("e\u200b\u0301") == "é"


@pytest.mark.parametrize("mark", ["\u0301", "\u0323", "\u0f71", "\u0f73", "\U0001e8d0"])
def test_thirty_combining_marks_are_kept(mark):
    def capped(count):
        return normalise_unicode("a" + mark * count + "b")

    assert capped(30) == unicodedata.normalize("NFKC", "a" + mark * 30 + "b")
    assert capped(31) == capped(30) == capped(5000)
    assert capped(29) != capped(30)


@pytest.mark.parametrize("name", sorted(STEPS.keys() - {"lower", "code"}))
def test_no_step_is_slow_on_hostile_text(name):
    for kind, text in HARD.items():
        before = time.process_time()
        STEPS[name](text)
        assert time.process_time() - before < 2, kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("<p>one</p><p>two</p>", " one  two "),
        ("a<br>b<br/>c", "a b c"),
        ("<a href=\"x\" title='y'>link</a>", " link "),
        ("<A HREF=x>link</A>", " link "),
        ("before<!-- hidden <b>bold</b> -->after", "before after"),
        ("before<!-- <script> --> after", "before  after"),
        ("a<script>var x = '<b>';</script>b", "a b"),
        ("a<SCRIPT type='x'>if (a < b && c > d) {}</Script >b", "a b"),
        ("a<style>p { color: red }</style>b", "a b"),
        ("<scripted>kept</scripted>", " kept "),
        ("<!DOCTYPE html><?xml version='1.0'?>x", "  x"),
        ("2 < 3 and 5 > 4", "2 < 3 and 5 > 4"),
        ("a <- b <3", "a <- b <3"),
        ("unclosed <b", "unclosed <b"),
        ("unclosed <!-- comment", "unclosed "),
        ("unclosed <script> code", "unclosed "),
        ("stray --> arrow", "stray --> arrow"),
        ("&lt;b&gt; &amp; &quot;&#20013;&#x6587;&nbsp;&eacute;", '<b> & "中文\xa0é'),
        ("&amp;lt;", "&lt;"),
        ("&#0;&#xD800;&#x110000;", "\ufffd\ufffd\ufffd"),
        ("&#99999999999;", "\ufffd"),
        ("&unknown; & &;", "&unknown; & &;"),
        ("", ""),
    ],
)
def test_tags_are_stripped_and_references_resolved(text, expected):
    assert strip_tags(text) == expected


@given(st.text(st.characters(exclude_characters="<&", exclude_categories=()), max_size=80))
def test_texts_without_tags_and_references_stay_as_they_are(text):
    assert strip_tags(text) == text


@given(st.lists(st.text(st.characters(exclude_characters="<>&-", exclude_categories=("Cs",)))))
def test_tags_around_texts_leave_the_texts(texts):
    page = "".join(f"<div class='c'>{text}</div><!-- c --><script>s</script>" for text in texts)
    assert strip_tags(page).split() == " ".join(texts).split()


@given(st.text(st.sampled_from("&#xamp;lt0123456789ABCDEF;"), max_size=40))
def test_references_of_a_reasonable_length_are_resolved_as_html_says(text):
    assume(not re.search(r"&#(\d{8}|x[0-9a-f]{7})", text, re.IGNORECASE))
    assert strip_tags(text) == html.unescape(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a\tb\nc\rd　e", "abcde"),
        ("a&nbsp;b&amp;c&lt;d&gt;e&quot;f&apos;g", "abcdefg"),
        ("a & b < c > d", "abcd"),
        ("&copy; stays", "copy;stays"),
        ("养猫？", "养猫？"),
    ],
)
def test_special_characters_and_references_are_removed(text, expected):
    assert remove_special(text) == expected


@given(st.text())
def test_word_characters_are_letters_digits_and_underscores(text):
    expected = "".join(c for c in text if c.isalnum() or c == "_")
    assert keep_word_characters(text) == expected


@given(st.text() | st.text(TRICKY))
def test_letters_are_letters_digits_and_their_marks(text):
    expected = "".join(c for c in text if c.isalnum() or unicodedata.category(c)[0] == "M")
    assert keep_letters(text) == re.sub("[\ufe00-\ufe0f\U000e0100-\U000e01ef]", "", expected)
    assert keep_letters("ไม่ ไม้, हिन्दी_ ❤\ufe0f") == "ไม่ไม้हिन्दी"


@pytest.mark.parametrize("hyphen", ["-", "\u2010", "\u00ad"])
@pytest.mark.parametrize("end", ["\n", " \r\n\t "])
def test_hyphens_at_line_ends_are_dropped_between_letters(hyphen, end):
    joined = join_hyphenated(f"the moun{hyphen}{end}tain, Über{hyphen}{end}gang")
    assert joined == "the mountain, Übergang"
    for kept in (f"Anglo{hyphen}{end}Saxon", f"5{hyphen}{end}a", f"{hyphen}{end}a", f"a{hyphen}"):
        assert join_hyphenated(kept) == kept
    assert join_hyphenated(f"well{hyphen}known\n") == f"well{hyphen}known\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_one_ and __two words__", " one  and  two words "),
        ("snake_case __init__ a__b", "snake_case  init  a__b"),
        ("____ _", "   "),
        ("_甲_乙", " 甲_乙"),
        ("plain", "plain"),
    ],
)
def test_underscores_stay_inside_words_only(text, expected):
    assert strip_underscores(text) == expected


@pytest.mark.parametrize(
    ("header", "program"),
    [
        ("#!/usr/bin/python\n# Licence\n\n#\n", "\n'''What it does.'''\nimport os  # why\n"),
        ("/* Licence * / */\n  // Author", '\n#include "a.h" /* b */\n// c'),
        ("# note\n#", "\n#ifdef X"),
        ("", "x = 1 # y"),
        ("", " \n"),
        ("/* unclosed // *", ""),
    ],
)
def test_the_comments_at_the_beginning_of_a_program_are_dropped(header, program):
    assert drop_header(header + program).strip() == program.strip()
    code = fpdb.recipe("code")
    assert code.shingles(header + program).tolist() == code.shingles(program).tolist()


def test_steps_run_in_the_order_of_the_recipe():
    first = fpdb.Recipe("a", clean=("tags", "word-characters"), segment="characters")
    second = fpdb.Recipe("b", clean=("word-characters", "tags"), segment="characters")
    assert first.features("<b>x</b>") == {"x": 1}
    assert second.features("<b>x</b>") == {"b": 2, "x": 1}
    assert fpdb.Recipe("c", clean=("lower",), segment="whitespace").features("ABC") == {"abc": 1}
    assert fpdb.Recipe("d", clean=(), segment="whitespace").features("ABC ＡＢＣ") == {
        "ABC": 1,
        "ＡＢＣ": 1,
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for (int i=0; i<n; ++i) // add", "for ( int n = 0 ; n < n ; ++ n )"),
        ('#include <cstdio>\nputs("// no /* comment");', "n ( s ) ;"),
        ("x /* y */ = /** z **/ 0x1Fu + 1.5e3", "n = 0 + 0"),
        (
            "def f(a, b='it\\'s'):\n  '''Say \"why\".\n  '''\n  return a",
            "def n ( n , n = s ) : return n",
        ),
        ("interface internal implements _if", "interface n implements n"),
        ("a->b::c <<= d != e && !f", "n -> n :: n << = n != n && ! n"),
        ("a = '''unclosed // text", "n ="),
        ('a = """un"" // closed', "n ="),
        ('a = "unclosed\nb', "n = s n"),
        ("/* unclosed", ""),
        ("变量 = 函数(1)", "n = n ( 0 )"),
        ("", ""),
    ],
)
def test_code_is_folded_to_tokens(code, expected):
    assert fold_code(code) == expected


_TOKENS = st.lists(st.sampled_from(["x", "total", "while", "(", ")", "+=", "17", '"text"', ";"]))
_SPACES = st.sampled_from([" ", "\n", "\t \n", " // note\n", " /* a * b */ ", "\n# note\n"])


@given(_TOKENS, st.data())
def test_spaces_comments_and_names_of_code_change_nothing(tokens, data):
    plain = fold_code(" ".join(tokens))
    spaces = data.draw(st.lists(_SPACES, min_size=len(tokens), max_size=len(tokens)))
    names = {"x": "counter_1", "total": "é", "17": "0b1", '"text"': "'\\''"}
    spaced = "".join(
        names.get(token, token) + space for token, space in zip(tokens, spaces, strict=True)
    )
    assert fold_code(spaced) == plain
    assert len(plain.split()) == len(tokens)


def test_the_recipe_for_submissions_finds_renamed_programs():
    program = """
        // Sort by insertion.
        void sort(vector<int>& v) {
            for (int i = 1; i < v.size(); i++) {
                int key = v[i], j = i - 1;
                while (j >= 0 && v[j] > key) { v[j + 1] = v[j]; j--; }
                v[j + 1] = key;
            }
        }"""
    renamed = re.sub(r"//.*|\s+", " ", program)
    for name, other in (("v", "arr"), ("i", "idx"), ("j", "back"), ("key", "x"), ("sort", "f")):
        renamed = re.sub(rf"\b{name}\b", other, renamed)
    folded = fpdb.recipe("submissions")
    assert folded.fingerprint(program) == folded.fingerprint(renamed)
    assert fpdb.compare(program, renamed).distance > 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("déjà vu, où l'été à Nîmes", "deja vu, ou l'ete a Nimes"),
        ("Ελλάδα, ἀρχή", "Ελλαδα, αρχη"),
        ("أَحْمَدُ إلى آخِر مُؤمِن بـــيت", "احمد الى اخر مومن بيت"),
        ("שָׁלוֹם", "שלום"),
        ("ещё", "еще"),
        ("が ば 한국어 ไม่ कि Å", "が ば 한국어 ไม่ कि A"),
        ("e\u0301te\u0301", "ete"),
        ("plain", "plain"),
    ],
)
def test_marks_are_dropped(text, expected):
    assert drop_marks(text) == expected
    recipe = fpdb.recipe("web").replace(name="bare", clean=("unicode", "marks"))
    texts = [f"{text} {number} " * 20 for number in range(3)]
    bare = [f"{expected} {number} " * 20 for number in range(3)]
    for own, plain in zip(texts, bare, strict=True):
        assert recipe.shingles(own).tolist() == recipe.shingles(plain).tolist()
        first, second = recipe.batch([own, plain]).fingerprints.tolist()
        assert first == second


@given(st.text(st.characters(exclude_categories=())))
def test_marks_are_those_of_decomposed_characters(text):
    """By definition: what Unicode decomposes, without the marks of scripts that have accents."""
    accents = {*range(0x300, 0x370), *range(0x483, 0x488), *range(0x591, 0x5C8)} - {0x5BE}
    accents |= {*range(0x610, 0x61B), 0x640, *range(0x64B, 0x660), 0x670}
    expected = []
    for character in text:
        apart = unicodedata.normalize("NFD", character)
        left = "".join(each for each in apart if ord(each) not in accents)
        changed = left != apart and ord(character) < 0x2000
        expected.append(unicodedata.normalize("NFC", left) if changed else character)
    assert drop_marks(text) == "".join(expected)
