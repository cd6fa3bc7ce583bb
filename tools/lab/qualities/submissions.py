"""Measure how many copied programs are found, beside copydetect.

`lab/quality submissions`: modules of Python's own library are submissions, and others are made of
them: with all names changed, also with all functions in another order, with half of the functions
exchanged for those of another, and joined from two. Of all pairs of an original and a copy, a tool
reports those with at least some share of one in the other.
"""

import ast
import contextlib
import io
import random
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
from published import table

import fpdb

ORIGINALS, COPIES = 200, 50
LINES = 80, 600
SHARES = (0.1, 0.2, 0.33, 0.4, 0.5)
# Windows of four tokens are in too many programs, and those of sixteen bear no reordering.
WINDOWS = fpdb.Recipe("windows", 64, ("code",), "whitespace", fpdb.Grams(n=8, minimum=8))


class Renamed(ast.NodeTransformer):
    """Gives every name that a module binds another one, and drops what is said in strings."""

    def __init__(self, tree):
        bound = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        bound |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
        bound |= {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        self.names = {name: f"own_{number}" for number, name in enumerate(sorted(bound))}

    def generic_visit(self, node):
        for field in ("id", "arg", "name", "attr"):
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, self.names.get(name, name))
        return super().generic_visit(node)


def renamed(trees, _):
    return trees[0].body


def reordered(trees, dice):
    """Shuffle the functions and classes, and the functions of each class."""
    for node in ast.walk(trees[0]):
        if isinstance(node, ast.Module | ast.ClassDef):
            dice.shuffle(node.body)
    return trees[0].body


def exchanged(trees, dice):
    """Take half of one module, in pieces, and as many pieces of the other."""
    mine, other = (list(tree.body) for tree in trees)
    for at in dice.sample(range(len(mine)), min(len(mine) // 2, len(other))):
        mine[at] = other[at % len(other)]
    return mine


def joined(trees, _):
    return [each for tree in trees for each in tree.body[: len(tree.body) // 2]]


KINDS = {renamed: 1, reordered: 1, exchanged: 2, joined: 2}


def sources():
    """Return programs of some length, each of a dozen parts or more."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")):
        if {"test", "tests", "site-packages", "idlelib", "lib2to3", "encodings"} & set(path.parts):
            continue
        text = path.read_text("utf-8", "replace")
        if LINES[0] <= text.count("\n") <= LINES[1]:
            with contextlib.suppress(SyntaxError):
                if len(ast.parse(text).body) >= 8:
                    found.append(text)
    return found


def make(folder):
    """Write originals and copies; return the originals of each copy."""
    dice = random.Random(36)
    texts = dice.sample(sources(), ORIGINALS)
    for number, text in enumerate(texts):
        (folder / f"original-{number:03}.py").write_text(text, "utf-8")
    of = {}
    for kind, count in KINDS.items():
        for number in range(COPIES):
            chosen = dice.sample(range(ORIGINALS), count)
            body = kind([ast.parse(texts[each]) for each in chosen], dice)
            tree = ast.Module(body, [])
            name = f"{kind.__name__}-{number:03}.py"
            written = ast.unparse(ast.fix_missing_locations(Renamed(tree).visit(tree)))
            (folder / name).write_text(written, "utf-8")
            of[name] = {f"original-{each:03}.py" for each in chosen}
    return of


def by_containment(folder, least):
    documents = [fpdb.Document(path.name, path.read_text("utf-8")) for path in folder.iterdir()]
    pairs = fpdb.exact_pairs(documents, least, of="features", recipe=WINDOWS, containment=True)
    return {pair[:2]: pair.similarity for pair in pairs}


def by_passages(folder, least):
    with fpdb.create(folder.parent / "db", recipe=WINDOWS, passages=True) as database:
        fpdb.ingest(database, [folder])
        return {pair[:2]: max(pair[3:]) for pair in database.passage_pairs(least=least)}


def by_copydetect(folder, least):
    from copydetect import CopyDetector

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        detector = CopyDetector(
            test_dirs=[str(folder)], extensions=["py"], display_t=least, autoopen=False, silent=True
        )
        detector.run()
        names = [Path(each).name for each in detector.test_files]
        shares = np.maximum(*np.moveaxis(detector.similarity_matrix, -1, 0))
    return {(names[a], names[b]): shares[a, b] for a, b in np.argwhere(shares >= least)}


def measure(_):
    """Yield the table of the shares that are found, and of the right pairs among those reported."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "submissions"
        folder.mkdir()
        of = make(folder)
        for tool in (by_containment, by_passages, by_copydetect):
            pairs = tool(folder, SHARES[0])
            for least in SHARES:
                kept = {frozenset(pair) for pair, share in pairs.items() if share >= least}
                rows.append({"tool": f"{tool.__name__}, {least}"} | rated(kept, of))
    yield table(rows)


def rated(pairs, of):
    """Return recall by the kind of copy, and the precision."""
    found = dict.fromkeys(KINDS, 0)
    reported = 0
    for pair in pairs:
        copies = [name for name in pair if name in of]
        if len(copies) == 1 and len(pair) == 2:
            reported += 1
            right = bool(pair & of[copies[0]])
            for kind in KINDS:
                found[kind] += right and copies[0].startswith(kind.__name__)
    row = {kind.__name__: f"{found[kind] / COPIES / count:.2f}" for kind, count in KINDS.items()}
    precision = sum(found.values()) / reported if reported else 1
    return row | {"pairs": reported, "precision": f"{precision:.2f}"}
