"""Turn what was measured into the tables of the page."""

import functools

MARGIN = 0.05
PRECISE = 0.95
SURE_FOUND, SURE_RIGHT = 0.97, 0.98
DEFAULT = "**web**: words, 1 + log count"


def body(raw):
    """Write all tables."""
    found = raw["corpora"]
    parts = [
        f"Measured with {', '.join(raw['versions'])}.",
        table(corpora_rows(found)),
        "## Targets",
        table(target_rows(found)),
        "## Recipes and packages by k",
        "Precision / recall at each k, equal texts left out of both.",
        table(candidate_rows(found)),
    ]
    if any(each["hashes"] for each in found.values()):
        seeds = max(len(runs) for each in found.values() for runs in each["hashes"].values())
        words = (
            f"Precision / recall at k = 3, means of {seeds} hashes; in parentheses the smallest "
            "and the largest recall."
        )
        parts += ["## The same with other hashes", words, table(hash_rows(found))]
    for name, each in found.items():
        if "tags" in each:
            parts += ["## Pages that hide their text", tags_words(name, each)]
    parts += [f"![Precision and recall on {name}](quality-{name}.svg)" for name in found]
    return "\n\n".join(parts)


def table(rows):
    """Write rows, which all have the same columns, as Markdown."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def corpora_rows(found):
    return [
        {
            "corpus": name,
            "documents": f"{each['documents']:,}",
            "true pairs (.8 to 1)": f"{each['true']:,}",
            "pairs of equal texts": f"{each['equal']:,}",
            "too short for web": f"{each['short']:,}",
        }
        for name, each in found.items()
    ]


def with_equal(rating):
    """Return the precision if pairs of equal texts count as right."""
    right = rating["right"] + rating["equal"]
    return right / (right + rating["wrong"]) if right + rating["wrong"] else None


def target_rows(found):
    rows = []
    for name, each in found.items():
        own, peer = each["recipes"][DEFAULT][3], each["peers"]["simhash"]
        similar, sure = each["similar"], each["sure"]
        strict = similar["right"] / similar["reported"] if similar["reported"] else None
        wanted = peer["recall"] + MARGIN
        failed = f"; on {each['failed']} texts it fails" if each["failed"] else ""
        beside = f"simhash: {share(peer['recall'])}{failed}"
        rows.append(row(name, "recall at k = 3", own["recall"], wanted, beside))
        beside = (
            f"without them {share(own['precision'])}; simhash: {share(with_equal(peer))}, "
            f"without {share(peer['precision'])}"
        )
        what = "precision at k = 3, equal texts counted"
        rows.append(row(name, what, with_equal(own), PRECISE, beside))
        beside = f"from .8 on {share(similar['recall'])}"
        what = "similar: found of the pairs from .85 on"
        rows.append(row(name, what, sure["recall"], SURE_FOUND, beside))
        beside = f"{similar['right']} of {similar['reported']}, equal texts left out"
        what = "similar: right from .7 on of all reported"
        rows.append(row(name, what, strict, SURE_RIGHT, beside))
    return rows


def row(name, what, value, wanted, notes):
    reached = value is not None and round(value, 4) >= round(wanted, 4)
    return {
        "corpus": name,
        "row": what,
        "fpdb": share(value),
        "target": share(wanted),
        "reached": "yes" if reached else "**no**",
        "for comparison": notes,
    }


def candidate_rows(found):
    labels = found[next(iter(found))]["recipes"]
    chosen = [(f"{label}, k = {k}", ("recipes", label, k)) for label in labels for k in (3, 6)]
    chosen += [(f"web with 128 bits, k = {k}", ("wide", k)) for k in (6, 12)]
    chosen += [
        ("**web, similar** from .8", ("similar",)),
        ("package simhash, k = 3", ("peers", "simhash")),
        ("package datasketch, MinHashLSH at .8", ("peers", "datasketch")),
    ]
    return [line(found, label, path) for label, path in chosen]


def line(found, label, path):
    cells = {}
    for name, each in found.items():
        rating = functools.reduce(lambda inside, step: inside[step], path, each)
        cells[name] = f"{share(rating['precision'])} / {share(rating['recall'])}"
    return {"recipe": label, **cells}


def hash_rows(found):
    rows = []
    for label in found[next(iter(found))]["hashes"]:
        cells = {"recipe": label}
        for name, each in found.items():
            runs = each["hashes"][label]
            precisions = [run["precision"] for run in runs if run["precision"] is not None]
            recalls = [run["recall"] for run in runs]
            cells[name] = (
                f"{share(sum(precisions) / len(precisions))} / "
                f"{share(sum(recalls) / len(recalls))} "
                f"({share(min(recalls))} to {share(max(recalls))})"
            )
        rows.append(cells)
    return rows


def tags_words(name, each):
    tags = each["tags"]
    return (
        f"Many pages of {name} keep their text in a script template, and some consist of nothing "
        "but includes, which the server would fill in. The cleaning step `tags` drops all "
        "scripts: web with this step, on the pages themselves, finds "
        f"{tags['short']:,} of {each['documents']:,} pages too short (of the extracted texts "
        f"{each['short']:,}), and at k = 3 {share(tags['recall'])} of the true pairs. So the "
        "figures above are for texts that were extracted first, with the templates."
    )


def share(value):
    if value is None:
        return "-"
    return "1" if value == 1 else f"{value:.3f}".lstrip("0")
