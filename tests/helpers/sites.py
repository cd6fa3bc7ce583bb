"""Made sites: pages of one template that say different things, under the same notice."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

_SYLLABLES = [start + end for start in "bdfgklmnpr" for end in "aeo"]
_SMALL = ["the", "of", "and", "a", "to", "in", "is", "for", "with", "on", "by", "from", "at", "as"]

SHOP_NOTICE = [
    (
        "All prices include value added tax and exclude the cost of delivery, which is shown in "
        "the basket before you order. Orders that reach us before noon leave our house on the "
        "same day, if the article is in stock."
    ),
    (
        "You may return what you bought within thirty days and without giving a reason. We "
        "refund the full price as soon as the goods have reached us, at the latest after "
        "fourteen days. Please use the label that came with the parcel."
    ),
    (
        "Pictures may differ from the article. We answer for mistakes in descriptions only as "
        "far as the law requires it. Brands belong to their owners, and are named to describe "
        "the goods."
    ),
]
NEWS_NOTICE = [
    (
        "Do you have a question about your subscription or the delivery of your paper? Our "
        "customer service answers on working days from eight to five, and gladly calls you "
        "back. You find answers to what readers ask most in our help pages, at any hour of the "
        "day."
    ),
    (
        "No part of this site may be copied or sent on without our written permission. We "
        "aren't responsible for the content of other sites to which we link."
    ),
]
FORUM_NOTICE = [
    (
        "Please read the rules before you write, and search the forum before you ask. Be kind, "
        "as all who answer here do so in their own time. Whoever breaks the rules may lose the "
        "account."
    ),
]
MENU = ["Home", "News", "Offers", "Help", "Account", "Contact", "Imprint", "Privacy"]


@dataclass
class Writer:
    """Writes texts that have nothing but frequent words in common."""

    dice: random.Random
    vocabulary: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.vocabulary = ["".join(self.dice.choices(_SYLLABLES, k=3)) for _ in range(3000)]

    def words(self, count: int) -> list[str]:
        return [
            self.dice.choice(_SMALL if self.dice.random() < 0.3 else self.vocabulary)
            for _ in range(count)
        ]

    def phrase(self, count: int) -> str:
        return " ".join(self.words(count))

    def sentence(self) -> str:
        return self.phrase(self.dice.randint(7, 18)).capitalize() + "."

    def sentences(self, least: int, most: int) -> str:
        return " ".join(self.sentence() for _ in range(self.dice.randint(least, most)))

    def name(self) -> str:
        return self.phrase(1).capitalize() + " " + self.dice.choice(self.vocabulary).capitalize()


def links(names: list[str], tag: str = "li") -> str:
    return "".join(f'<{tag}><a href="/{name}">{name}</a></{tag}>' for name in names)


def tagged(texts: list[str], tag: str) -> str:
    return "".join(f"<{tag}>{text}</{tag}>" for text in texts)


def semantic(content: str, notice: list[str]) -> str:
    return (
        f"<header><nav><ul>{links(MENU)}</ul></nav></header><main>{content}</main>"
        f"<footer>{tagged(notice, 'p')}<ul>{links(MENU)}</ul></footer>"
    )


def named(content: str, notice: list[str]) -> str:
    return (
        f"<div class=page><div class=top-menu><ul>{links(MENU)}</ul></div>"
        f"<div class=content>{content}</div>"
        f"<div id=page-footer><div class=legal>{tagged(notice, 'p')}</div></div></div>"
    )


def banner(content: str, notice: list[str]) -> str:
    return (
        f"<div class=cookie-banner>{tagged(notice, 'p')}</div><div><ul>{links(MENU)}</ul></div>"
        f"<div><div>{content}</div></div>"
    )


def divs(content: str, notice: list[str]) -> str:
    return (
        f"<div><div>{links(MENU, 'div')}</div><div>{content}</div>"
        f"<div>{tagged(notice, 'div')}</div></div>"
    )


def table(content: str, notice: list[str]) -> str:
    return (
        f"<table><tr><td>{links(MENU, 'p')}</td><td>{content}</td></tr>"
        f"<tr><td colspan=2>{'<br><br>'.join(notice)}</td></tr></table>"
    )


DESIGNS: dict[str, Callable[[str, list[str]], str]] = {
    each.__name__: each for each in (semantic, named, banner, divs, table)
}
# Those in which no element says what is the content, or what is not.
SILENT = ("divs", "table")


def page(title: str, content: str, notice: list[str], design: str) -> str:
    body = DESIGNS[design](content, notice)
    return f"<html><head><title>{title} - Our site</title></head><body>{body}</body></html>"


def template(writer: Writer, design: str, own: int) -> str:
    """A page of which only some words are its own, and no sentence."""
    name = writer.name()
    content = f"<h1>{name}</h1><p>{writer.phrase(own)}</p>"
    return page(name, content, SHOP_NOTICE, design)


def item(writer: Writer, design: str) -> str:
    """An article of a shop: a few sentences, and a table."""
    name = writer.name()
    rows = "".join(
        f"<tr><td>{label}</td><td>{writer.phrase(2)} {writer.dice.randint(1, 999)}</td></tr>"
        for label in ("Colour", "Material", "Size", "Weight", "Article", "Price")
    )
    content = f"<h1>{name}</h1><p>{writer.sentences(2, 6)}</p><table>{rows}</table>"
    return page(name, content, SHOP_NOTICE, design)


def enum(writer: Writer, design: str) -> str:
    """An enum of a library's documentation, with the methods that all enums have."""
    name, package = writer.name().replace(" ", ""), ".".join(writer.words(3))
    constants = [writer.phrase(1).upper() for _ in range(writer.dice.randint(3, 9))]
    summary = "".join(
        f"<tr><td><a href=#{each}>{each}</a></td><td>{writer.phrase(5)}</td></tr>"
        for each in constants
    )
    details = "".join(
        f"<section><h3>{each}</h3><div>public static final {name} {each}</div></section>"
        for each in constants
    )
    methods = (
        f"<section><h3>values</h3><div>public static {name}[] values()</div><div>Returns an array "
        "containing the constants of this enum class, in the order they are declared.</div><dl>"
        "<dt>Returns:</dt><dd>an array containing the constants of this enum class, in the order "
        f"they are declared</dd></dl></section><section><h3>valueOf</h3><div>public static {name} "
        "valueOf(String name)</div><div>Returns the enum constant of this class with the specified "
        "name. The string must match <i>exactly</i> an identifier used to declare an enum constant "
        "in this class. (Extraneous whitespace characters are not permitted.)</div><dl>"
        "<dt>Parameters:</dt><dd>name - the name of the enum constant to be returned.</dd><dt>"
        "Returns:</dt><dd>the enum constant with the specified name</dd><dt>Throws:</dt><dd>"
        "IllegalArgumentException - if this enum class has no constant with the specified name</dd>"
        "<dd>NullPointerException - if the argument is null</dd></dl></section>"
    )
    content = (
        f"<div><span>Package</span> <a href=p>{package}</a></div><h1>Enum Class {name}</h1>"
        f"<div>java.lang.Object<div>java.lang.Enum&lt;{name}&gt;<div>{package}.{name}</div></div>"
        f"</div><section><div>{writer.sentence()}</div></section><section><h2>Enum Constant "
        f"Summary</h2><table>{summary}</table></section><section><h2>Enum Constant Details</h2>"
        f"{details}</section><section><h2>Method Details</h2>{methods}</section>"
    )
    return page(f"{name} ({package})", content, NEWS_NOTICE[1:], design)


def news(writer: Writer, design: str) -> str:
    """A short item of news: one paragraph or two."""
    title = writer.phrase(7).capitalize()
    day = f"{writer.dice.randint(1, 28)} May 2024"
    content = (
        f"<h1>{title}</h1><div>By {writer.name()}, {day}</div>"
        f"{tagged([writer.sentences(2, 3) for _ in range(writer.dice.randint(1, 2))], 'p')}"
    )
    return page(title, content, NEWS_NOTICE, design)


def posts(writer: Writer, count: int) -> list[tuple[str, str, str]]:
    """Posts of a thread, or comments: who wrote, when, and what."""
    return [
        (
            writer.name(),
            f"{writer.dice.randint(1, 28)} May 2024, 10:{writer.dice.randint(10, 59)}",
            writer.sentences(1, 5),
        )
        for _ in range(count)
    ]


def boxed(posts: list[tuple[str, str, str]], tag: str = "div class=post") -> str:
    end = tag.split(maxsplit=1)[0]
    return "".join(f"<{tag}>{tagged(list(post), 'div')}</{end}>" for post in posts)


def threaded(title: str, posts: list[tuple[str, str, str]], design: str) -> str:
    return page(title, f"<h1>{title}</h1><div>{boxed(posts)}</div>", FORUM_NOTICE, design)


def thread(writer: Writer, design: str) -> str:
    """A question in a forum, with a few replies."""
    title = writer.phrase(6).capitalize()
    return threaded(title, posts(writer, writer.dice.randint(2, 5)), design)
