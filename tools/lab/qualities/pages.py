"""Measure how well the main content of real pages is found, and how fast: fpdb and others.

`lab/quality pages --half` leaves out the pages on which the rules were made. The pages come with
the text of their articles. Each article is also put into two made designs of a site.
"""

import gc
import random
import re
import time
import zlib
from collections import Counter
from dataclasses import dataclass

import corpora
from published import table
from resiliparse.extract.html2text import extract_plain_text

import fpdb
from fpdb.fingerprint.sketches import exact_shares
from fpdb.io.extraction import GARBAGE, extract

# On a machine that has other work, the fastest run of a page says most.
RUNS = 5
SIMILAR, RECIPE = 0.8, fpdb.recipe("web")
# A page is lost with less of its article than this.
LOST = 0.1
WORDS = ["World", "Business", "Science", "Culture", "Sport", "Travel", "Opinion", "Weather"]


def resiliparse(page):
    return extract_plain_text(page, main_content=True, alt_texts=False, list_bullets=False)


def peer(page, **options):
    import trafilatura

    return trafilatura.extract(page, include_comments=False, **options) or ""


METHODS = {
    "**fpdb**, main content": lambda page: extract(page, main=True)[0],
    "fpdb, whole page": lambda page: extract(page, main=False)[0],
    "resiliparse, main content": resiliparse,
    "trafilatura": peer,
    "trafilatura, fast": lambda page: peer(page, fast=True),
}


@dataclass(frozen=True)
class Page:
    name: str
    html: str
    article: str

    @property
    def held_out(self):
        return zlib.crc32(self.name.encode()) % 2 == 1


def load(name):
    return [
        Page(found["id"], found["html"], found["article_body"])
        for found in corpora.records(name, "pages")
    ]


def units(text, chinese):
    if not chinese:
        return Counter(re.findall(r"\w+", text.lower()))
    text = "".join(text.split())
    return Counter(text[at : at + 3] for at in range(len(text) - 2))


def rate(found, truth):
    if not found or not truth:
        return (float(not found and not truth),) * 3
    common = (found & truth).total()
    precision, recall = common / found.total(), common / truth.total()
    return 2 * common / (found.total() + truth.total()), precision, recall


def alike(first, second):
    share, _ = exact_shares(*RECIPE.shingles_many([first, second]))
    return share is not None and share >= SIMILAR


def boxes(texts):
    return "".join(f"<div>{text}</div>" for text in texts)


def links(texts):
    return boxes(f'<a href="/{text}">{text}</a>' for text in texts)


def magazine(title, paragraphs, others):
    """Lay out an article with a menu, a summary, and teasers of others below."""
    teasers = boxes(
        links([other[0].split(".")[0][:60]]) + boxes([f"{other[0][:140]}…"]) for other in others
    )
    return (
        f"<title>{title} | The Magazine</title><body><div>{links(WORDS)}</div>"
        f"<div><div>{title}</div><div>{paragraphs[0][:120]}…</div><div>By Ann Writer</div>"
        f"<div>5 May 2024, 10:12</div></div><div>{boxes(paragraphs)}</div>"
        f"<div><div>More stories</div>{teasers}</div>"
        f"<div>© The Magazine. All rights reserved.{links(['Imprint', 'Privacy', 'Contact'])}</div>"
    )


def portal(title, paragraphs, others):
    """Lay out an article in lines, with tools around it, and comments and notices below."""
    comments = boxes(
        boxes([f"Reader {number}", f"{number} hours ago", other[-1][:200]])
        for number, other in enumerate(others)
    )
    return (
        f"<title>{title}</title><body><div>We use cookies to improve your experience of this site. "
        f"<a href=/c>More</a></div><div><div>{links(('Home', *reversed(WORDS)))}</div></div>"
        f"<div><div>Sunday, May 5, 2024 - Updated 11:48 AM</div><div>{title}</div>"
        f"{links(['Share', 'Print', 'Save'])}<div><div>{'<br><br>'.join(paragraphs)}</div></div>"
        f"<div>Editor: B. Writer</div></div><div><div>{len(others)} comments</div>{comments}</div>"
        f"<div>Get our newsletter every morning, with the best stories of the day.</div>"
        f"<div>{links(WORDS)}<div>The Portal is not responsible for other sites.</div></div>"
    )


def designs(pages):
    """Return the articles of pages in two designs each, which have nothing else in common."""
    dice, laid_out = random.Random(17), []
    texts = [[line for line in page.article.splitlines() if line.strip()] for page in pages]
    for own in texts:
        title = " ".join(own[0].split()[:9])
        others = dice.sample(texts, 10)
        laid_out.append((magazine(title, own, others[:5]), portal(title, own, others[5:])))
    return laid_out


def timed(method, page):
    taken = []
    for _ in range(RUNS):
        started = time.process_time()
        found = method(page)
        taken.append(time.process_time() - started)
    return found, min(taken)


def measured(method, pages, chinese):
    texts, times = zip(*(timed(method, page.html) for page in pages), strict=True)
    rates = [
        rate(units(text, chinese), units(page.article, chinese))
        for text, page in zip(texts, pages, strict=True)
    ]
    means = [sum(column) / len(pages) for column in zip(*rates, strict=True)]
    same = sum(alike(text, page.article) for text, page in zip(texts, pages, strict=True))
    lost = sum(recall < LOST for _, _, recall in rates)
    return [*means, same / len(pages), lost, len(pages) / sum(times)]


def measure(options):
    gc.set_threshold(GARBAGE)  # as in the process that reads pages
    english, chinese = (
        [page for page in load(name) if page.held_out or not options.half]
        for name in ("html-en", "html-zh-articles")
    )
    pairs, rows = designs(english), []
    for name, method in METHODS.items():
        row = {"": name}
        for language, pages in (("English", english), ("Chinese", chinese)):
            *shares, lost, speed = measured(method, pages, language == "Chinese")
            row[f"{language}: F1"], *others = (f"{share:.3f}".lstrip("0") for share in shares)
            row[f"precision, recall, similar ({language})"] = ", ".join(others)
            row[f"lost ({language})"] = lost
            row[f"pages/s ({language})"] = f"{speed:.0f}"
        same = sum(alike(method(one), method(other)) for one, other in pairs)
        rows.append(row | {"two designs": f"{same} of {len(pairs)}"})
    yield table(rows)
    yield f"{len(english)} English and {len(chinese)} Chinese pages"
