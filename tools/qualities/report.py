"""Turn what was measured into the tables of the page."""

from collections import defaultdict

PRECISE = 0.95
FOUND = ((0.8, 0.85), (0.85, 1.0))
Z = 1.96  # standard errors on either side of a share, as Wilson reckons its interval
LEAST = 30  # a share of fewer copies says nothing
COPIES = (
    "Share of the copies that are found, English / Chinese, by similarity to the original; in "
    "parentheses the interval of 95 %."
)
EACH = (
    "What fpdb finds of each edit, and in the corpus where it finds least, among those with "
    f"{LEAST} such copies or more."
)
NATURAL = (
    "Found of the pairs from .8 to .85 / from .85 to below 1; in parentheses the share of the "
    "reported pairs that are right, from .7 on."
)
ALONE = (
    "Precision / recall, means of several hashes; in parentheses the lowest and the highest "
    "recall. Of each recipe k = 3, and the largest k above at which the mean precision is at least "
    ".95 on every corpus, if there is one; of web its own k, and 9, which finds more."
)
DEFAULT, DEFAULT_KS = "**web**", {7, 9}


def body(raw):
    """Write all tables."""
    found, copies = raw["corpora"], raw["copies"]
    parts = [f"Measured with {', '.join(raw['versions'])}."]
    if copies:
        parts += [
            "## Edited copies",
            COPIES,
            table(method_rows(copies)),
            EACH,
            table(edit_rows(copies)),
        ]
    if found:
        parts += [
            "## Natural pairs",
            NATURAL,
            table(answer_rows(found)),
            "## Fingerprints alone",
            ALONE,
            table(recipe_rows(found)),
        ]
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


def method_rows(copies):
    """Write one row for each method, and one for the numbers of copies."""
    sums = defaultdict(int)
    reports = defaultdict(int)
    for own in copies.values():
        for line in own["edits"]:
            for label in line.keys() - {"edit", "from"}:
                sums[label, own["chinese"], line["from"]] += line[label]
        for label, counts in own["reports"].items():
            for what, count in counts.items():
                reports[label, what] += count
    lowers = sorted({lower for _, _, lower in sums})
    labels = list(next(iter(copies.values()))["reports"])
    numbers = {"": "copies"} | {
        edges(lower): f"{sums['pairs', False, lower]:,} / {sums['pairs', True, lower]:,}"
        for lower in lowers
    }
    rows = [numbers | {"right from .7 on": "", "from .8 on": ""}]
    for label in labels:
        cells = {
            edges(lower): " / ".join(
                ranged(sums[label, chinese, lower], sums["pairs", chinese, lower], label)
                for chinese in (False, True)
            )
            for lower in lowers
        }
        reported = reports[label, "reported"]
        right = {
            "right from .7 on": part(reports[label, "right"], reported),
            "from .8 on": part(reports[label, "similar"], reported),
        }
        rows.append({"": named(label)} | cells | right)
    return rows


def edit_rows(copies):
    """Write for each edit what fpdb finds, in all and in the corpus where it finds least."""
    rows = []
    for edit in dict.fromkeys(line["edit"] for own in copies.values() for line in own["edits"]):
        cells = {"edit": edit}
        for low, high in FOUND:
            counts = {}
            for name, own in copies.items():
                lines = [
                    line
                    for line in own["edits"]
                    if line["edit"] == edit and low <= line["from"] < high
                ]
                counts[name] = [sum(line[what] for line in lines) for what in ("pairs", "fpdb")]
            pairs, got = map(sum, zip(*counts.values(), strict=True))
            several = {name: own for name, own in counts.items() if own[0] >= LEAST}
            lowest = min(several, key=lambda name: counts[name][1] / counts[name][0], default=None)
            words = f"{part(got, pairs)} of {pairs:,}"
            if lowest:
                words += f"; {lowest} {part(counts[lowest][1], counts[lowest][0])}"
            cells[edges(low, high)] = words
        rows.append(cells)
    return rows


def answer_rows(found):
    """Write what each method finds among the texts of each corpus."""
    rows = [
        {"": "pairs"}
        | {
            name: f"{own['true'][0] - own['true'][1]:,} / {own['true'][1]:,}"
            for name, own in found.items()
        }
    ]
    for label in next(iter(found.values()))["answers"]:
        cells = {"": named(label)}
        for name, own in found.items():
            answer = own["answers"][label]
            (every, sure), (got, surely) = own["true"], answer["found"]
            cells[name] = (
                f"{part(got - surely, every - sure)} / {part(surely, sure)} "
                f"({part(answer['right'], answer['reported'])})"
            )
        rows.append(cells)
    return rows


def recipe_rows(found):
    """Write each recipe at k = 3 and the largest k where it is precise everywhere, web at more."""
    rows = []
    for label in next(iter(found.values()))["recipes"]:
        more = DEFAULT_KS if label.startswith(DEFAULT) else set()
        for k in sorted({3, max(3, precise_to(found, label)), *more}):
            cells = {"recipe": f"{label}, k = {k}"}
            for name, own in found.items():
                each = own["recipes"][label][k]
                cells[name] = (
                    f"{share(each['precision'])} / {share(each['recall'])} "
                    f"({share(each['least'])} to {share(each['most'])})"
                )
            rows.append(cells)
    return rows


def precise_to(found, label):
    """Return the largest k at which a recipe is precise on all corpora, at least 0."""
    runs = [own["recipes"][label] for own in found.values()]
    precise = [
        all(each[k]["precision"] is None or each[k]["precision"] >= PRECISE for each in runs)
        for k in range(len(runs[0]))
    ]
    return max((k for k in range(len(precise)) if all(precise[: k + 1])), default=0)


def tags_words(name, each):
    tags = each["tags"]
    return (
        f"Many pages of {name} keep their text in a script template, and some consist of nothing "
        "but includes, which the server would fill in. The cleaning step `tags` drops all "
        "scripts: web with this step, on the pages themselves, finds "
        f"{tags['pages']:,} of {each['documents']:,} pages too short, of the extracted texts "
        f"{tags['texts']:,}. So the figures above are for texts that were extracted first, with "
        "the templates."
    )


def named(label):
    packages = {
        "fpdb": "**fpdb**, similarity .8",
        "simhash": "simhash, k = 3",
    }
    return packages.get(label, f"{label} at .8")


def edges(low, high=None):
    high = high or min(edge for edge in (0.85, 0.9, 0.95, 1.0) if edge > low)
    return "–".join("1" if edge == 1 else f"{edge:.2f}".lstrip("0") for edge in (low, high))


def ranged(count, whole, label):
    """Write a share, that of fpdb with the range where chance would leave it 19 times in 20."""
    if label != "fpdb" or not whole:
        return part(count, whole)
    middle, scatter = count + Z**2 / 2, Z * (count * (whole - count) / whole + Z**2 / 4) ** 0.5
    low, high = (round((middle + way * scatter) / (whole + Z**2), 6) for way in (-1, 1))
    return f"{part(count, whole)} ({share(low)} to {share(high)})"


def part(count, whole):
    return share(count / whole) if whole else "-"


def share(value):
    if value is None:
        return "-"
    # What is less than 1 isn't shown as 1.
    return f"{value:g}" if value in (0, 1) else f"{min(value, 0.999):.3f}".lstrip("0")
