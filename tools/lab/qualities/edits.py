"""Edits of known kinds on real texts: what copies of a document look like."""

import random
import re
from dataclasses import dataclass
from functools import partial

import jieba

_SENTENCE = re.compile(r"[^。！？!?\n]*?(?:[。！？!?]+|\.(?=\s)|\n+|$)", re.DOTALL)
_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"\d+")
_WORDS_OF_A_SENTENCE = 15
# Sentences of a passage: an edit of one of them changes a tenth of it, more or less.
SENTENCES = (8, 40)
FEWEST = 4
_NOTICE_ZH = (
    "版权声明：本网站所有内容均受著作权法保护，未经书面许可不得转载、摘编或以其他方式使用。"
    "责任编辑：网络部 联系我们 关于本站 法律声明 网站地图 友情链接"
)
_NOTICE_EN = (
    "All rights reserved. This material may not be published, broadcast, rewritten or "
    "redistributed without permission. Contact us. About this site. Terms of use. Privacy policy. "
    "Share this page with your friends. Follow us for the latest news."
)
# A menu before the text, and a notice after it: in Chinese, and in English.
BOILERPLATE = {
    True: (
        "首页 新闻 财经 体育 娱乐 科技 汽车 房产 您现在的位置：首页 > 新闻中心 > 正文",
        _NOTICE_ZH,
    ),
    False: ("Home News Business Sport Weather Sign in You are here: Home > News", _NOTICE_EN),
}


@dataclass(frozen=True)
class Source:
    """Passages of a corpus, and what edits put into them."""

    chinese: bool
    passages: list  # each a list of sentences
    words: list


def source(texts, *, chinese, count, seed=0):
    """Take a passage of real sentences from each of `count` different texts."""
    chance = random.Random(seed)
    texts = sorted(set(texts))
    chance.shuffle(texts)
    passages = []
    for text in texts:
        if len(passages) == count:
            break
        own = sentences(text)
        wanted = chance.randint(*SENTENCES)
        start = chance.randrange(max(len(own) - wanted, 0) + 1)
        if len(own) >= FEWEST:
            passages.append(own[start : start + wanted])
    sample = "".join(each for own in passages[:200] for each in own)
    words = [word for word in cut(sample, chinese) if _WORD.fullmatch(word)]
    return Source(chinese, passages, words)


def sentences(text):
    """Cut into sentences; a text without stops is cut into runs of words."""
    found = []
    for part in _SENTENCE.findall(text):
        words = list(_WORD.finditer(part)) if " " in part else []
        at = 0
        for word in words[_WORDS_OF_A_SENTENCE * 4 :: _WORDS_OF_A_SENTENCE]:
            found.append(part[at : word.start()])
            at = word.start()
        found.append(part[at:])
    return [each for each in found if _WORD.search(each)]


def cut(text, chinese):
    """Cut into words and what is between them; joined they are the text again."""
    if chinese:
        return [piece for piece in jieba.cut(text, HMM=False) if piece]
    return [piece for piece in re.split(r"(\w+)", text) if piece]


@dataclass(frozen=True)
class Editor:
    """Makes copies of passages; each method takes the sentences of one."""

    origin: Source
    chance: random.Random

    def replaced(self, own):
        own = list(own)
        own[self.chance.randrange(len(own))] = self._another()
        return "".join(own)

    def inserted(self, own):
        at = self.chance.randrange(len(own) + 1)
        return "".join([*own[:at], self._another(), *own[at:]])

    def moved(self, own):
        own = list(own)
        taken = own.pop(self.chance.randrange(len(own)))
        own.insert(self.chance.randrange(len(own) + 1), taken)
        return "".join(own)

    def changed(self, own, share):
        """Change this share of the words, each to another word of the corpus."""
        pieces = cut("".join(own), self.origin.chinese)
        places = [at for at, piece in enumerate(pieces) if _WORD.fullmatch(piece)]
        for at in self.chance.sample(places, max(1, round(len(places) * share))):
            pieces[at] = self.chance.choice(self.origin.words)
        return "".join(pieces)

    def added(self, own):
        text, other = "".join(own), "".join(self.chance.choice(self.origin.passages))
        return text + other[: len(text) // 5]

    def shortened(self, own):
        text = "".join(own)
        return text[: len(text) - len(text) // 10]

    def framed(self, own):
        head, foot = BOILERPLATE[self.origin.chinese]
        return f"{head}\n{''.join(own)}\n{foot}"

    def updated(self, own):
        return _DIGITS.sub(
            lambda found: "".join(self.chance.choice("0123456789") for _ in found[0]), "".join(own)
        )

    def _another(self):
        return self.chance.choice(self.chance.choice(self.origin.passages))


EDITS = {
    "a sentence replaced": Editor.replaced,
    "a sentence inserted": Editor.inserted,
    "a sentence moved": Editor.moved,
    **{
        f"{share} % of the words changed": partial(Editor.changed, share=share / 100)
        for share in (1, 2, 4, 8)
    },
    "a fifth of another text added": Editor.added,
    "the last tenth cut": Editor.shortened,
    "a menu and a notice around": Editor.framed,
    "all figures updated": Editor.updated,
}
