"""Turn what was measured into the tables of the page."""

from collections import defaultdict

from published import table

PRECISE = 0.95
FOUND = ((0.8, 0.85), (0.85, 1.0))
LEAST = 30  # a share of fewer copies says nothing
COPIES = "Share of the copies that are found, English / Chinese, by similarity to the original."
EACH = (
    "What fpdb finds of each edit, and in parentheses of the corpus where it finds least, among "
    f"those with {LEAST} such copies or\nmore. Of the edits that aren't listed, every copy is "
    "found."
)
NATURAL = (
    "Found of the pairs from .8 to .85 / from .85 to below 1; in parentheses the share of the "
    "reported pairs that are right, from\n.7 on."
)
ALONE = (
    "Precision in the corpus where it is lowest, and recall where it is lowest and highest, of the "
    "presets, and of words by plain\ncounts. k is 3, or the largest one at which the mean "
    "precision is at least .95 on every corpus; of web also others. Shingles\nfind most if k may "
    "grow; at k = 3 words find more, but one pair in ten of the newswire is wrong."
)
DEFAULT, DEFAULT_KS = "**web**", {3, 7, 9}


def body(raw):
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
        parts += [f"![Precision and recall on {name}](quality-{name}.svg)" for name in found]
    return "\n\n".join(parts)


def method_rows(copies):
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
                part(sums[label, chinese, lower], sums["pairs", chinese, lower])
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
        cells, missed = {"edit": edit}, 0
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
            words = f"{part(got, pairs)} of {pairs:,}" if pairs >= LEAST else ""
            if lowest and got < pairs:
                words += f" ({lowest} {part(*reversed(counts[lowest]))})"
            cells[edges(low, high)] = words
            missed += pairs - got
        if missed:
            rows.append(cells)
    return rows


def answer_rows(found):
    """Write what fpdb finds of the pairs of each corpus."""
    pairs, answers = {"": "pairs"}, {"": named("fpdb")}
    for name, own in found.items():
        answer = own["answers"]["fpdb"]
        (every, sure), (got, surely) = own["true"], answer["found"]
        pairs[name] = f"{every - sure:,} / {sure:,}"
        answers[name] = (
            f"{part(got - surely, every - sure)} / {part(surely, sure)} "
            f"({part(answer['right'], answer['reported'])})"
        )
    return [pairs, answers]


def recipe_rows(found):
    rows = []
    for label in next(iter(found.values()))["recipes"]:
        more = DEFAULT_KS if label.startswith(DEFAULT) else set()
        for k in sorted({max(3, precise_to(found, label)), *more}):
            ratings = {name: own["recipes"][label][k] for name, own in found.items()}
            precisions = [each["precision"] for each in ratings.values()]
            lowest = min((each for each in precisions if each is not None), default=None)
            recalls = [each["recall"] for each in ratings.values()]
            shown = f"{share(min(recalls))} to {share(max(recalls))}"
            rows.append({"recipe": label, "k": k, "precision": share(lowest), "recall": shown})
    return rows


def precise_to(found, label):
    """Return the largest k at which a recipe is precise on all corpora, at least 0."""
    runs = [own["recipes"][label] for own in found.values()]
    precise = [
        all(each[k]["precision"] is None or each[k]["precision"] >= PRECISE for each in runs)
        for k in range(len(runs[0]))
    ]
    return max((k for k in range(len(precise)) if all(precise[: k + 1])), default=0)


def named(label):
    packages = {
        "fpdb": "**fpdb**, similarity .8",
        "simhash": "simhash, k = 3",
    }
    return packages.get(label, f"{label} at .8")


def edges(low, high=None):
    high = high or min(edge for edge in (0.85, 0.9, 0.95, 1.0) if edge > low)
    return "–".join("1" if edge == 1 else f"{edge:.2f}".lstrip("0") for edge in (low, high))


def part(count, whole):
    return share(count / whole) if whole else "-"


def share(value):
    if value is None:
        return "-"
    # What is less than 1 isn't shown as 1.
    return f"{value:g}" if value in (0, 1) else f"{min(value, 0.999):.3f}".lstrip("0")
