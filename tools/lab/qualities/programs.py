"""Measure which versions of source files each recipe finds, and which disguised copies.

`lab/quality programs`: the corpus `programs` has files of releases of packages, with the fields
package, path and version. Found are the pairs of neighbouring versions of a file that differ;
others are pairs of files of other names. Of a sample, copies are looked up whose names are
replaced, whose parts are also in another order, or that have another licence.
"""

import random
import re
import tempfile
from pathlib import Path, PurePosixPath

import corpora
from published import table

import fpdb
from fpdb.fingerprint.segmentation import fold_code

SAMPLE, LICENCE_WORDS = 300, 90
RECIPES = (("web", 0.8), ("web", 0.65), ("code", None), ("submissions", None))
_NAME = re.compile(r"(?<![\w.\"'#])[A-Za-z_]\w*")
_PART = re.compile(r"\n(?=(?:async|class|const|def|function|int|static|struct|var|void)\b)")


def disguised(text, dice, words):
    """Return the copies of a file by what was done to it."""
    names = {}

    def renamed(found):
        kept = fold_code(found[0]) != "n" or found[0] in {"include", "define"}
        return found[0] if kept else names.setdefault(found[0], f"name_{len(names)}")

    other = _NAME.sub(renamed, text)
    parts = _PART.split(other)
    dice.shuffle(parts)
    licence = " ".join(dice.choices(words, k=LICENCE_WORDS))
    return {
        "renamed": other,
        "and reordered": "\n".join(parts),
        "a licence added": f"/*\n * {licence}\n */\n{text}",
    }


def measure(_):
    found = list(corpora.records("programs"))
    dice = random.Random(4)
    words = [word for each in found[:200] for word in re.findall(r"\w+", each["text"])]
    sample = dice.sample(range(len(found)), min(SAMPLE, len(found)))
    copies = [disguised(found[place]["text"], dice, words) for place in sample]
    latest, versions = {}, set()
    for place, each in enumerate(found):
        name = each["package"], each["path"]
        if name in latest:
            versions.add((latest[name], place))
        latest[name] = place
    yield table([rated(found, versions, sample, copies, *each) for each in RECIPES])


def rated(found, versions, sample, copies, preset, similarity):
    recipe = fpdb.recipe(preset)
    recipe = recipe if similarity is None else recipe.replace(similarity=similarity)
    row = {f"{len(found):,} files": f"{preset}, {recipe.similarity}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        fpdb.create(Path(folder) / "db", recipe=recipe, keys="integer") as db,
    ):
        texts = (fpdb.Document(place, each["text"]) for place, each in enumerate(found))
        list(db.add_many(texts))
        pairs = {tuple(sorted((pair.key, pair.other))) for pair in db.pairs()}
        names = [PurePosixPath(each["path"]).name for each in found]
        row[f"of {len(versions):,} versions"] = len(pairs & versions)
        row["others"] = sum(names[one] != names[other] for one, other in pairs)
        for disguise in copies[0]:
            answers = db.query_many([each[disguise] for each in copies])
            hits = [p in {m.key for m in own} for p, own in zip(sample, answers, strict=True)]
            row[disguise] = f"{sum(hits) / len(hits):.3f}"
    return row
