"""Draw what a query costs against the number of documents, with both axes logarithmic."""

import statistics

import published

TITLE = "What a query costs, against the number of documents"
# panel -> the row; how many queries a value is of
PANELS = {
    "One query at a time, p50": ("single p50", 1),
    "100 k queries in a batch, each": ("batch 100k", 100_000),
}
# (side, cores) -> label, colour and line
SERIES = {
    ("fpdb", "one"): ("fpdb", "#b3261e", "-"),
    ("sqlite", "one"): ("SQLite, four block columns", "#8a6d00", "-"),
    ("faiss", "one"): ("FAISS (64,4,16)", "#1a5fb4", "-"),
    ("faiss", "all"): ("FAISS (64,4,16), all cores", "#1a5fb4", "--"),
    ("faiss-flip", "one"): ("FAISS (64,3,21), a flip", "#0b7a75", "-"),
    ("faiss-flip", "all"): ("FAISS (64,3,21), a flip, all cores", "#0b7a75", "--"),
    ("pynear", "one"): ("pynear", "#5e35b1", "-"),
    ("simhash", "one"): ("simhash", "#616161", "-"),
}


def costs(records, side, cores, row):
    wanted = {"data": "uniform", "side": side, "cores": cores, "row": row}
    return sorted(
        (record["documents"], statistics.median(record["values"]))
        for record in records
        if wanted.items() <= record.items() and record["values"]
    )


def draw(records):
    def panels(figure):
        figure.suptitle(TITLE)
        named = {}
        for axes, (title, (row, each)) in zip(
            figure.subplots(1, 2, sharey=True), PANELS.items(), strict=True
        ):
            axes.set(title=title, xscale="log", yscale="log", xlabel="documents", ylabel="µs")
            axes.grid(visible=True, which="both", alpha=0.3)
            for (side, cores), (label, colour, line) in SERIES.items():
                points = costs(records, side, cores, row)
                x, y = [n for n, _ in points], [1e6 * cost / each for _, cost in points]
                [named[label]] = axes.plot(x, y, line, color=colour, marker="o", label=label)
        figure.legend(named.values(), named, loc="outside lower center", ncols=3)

    return published.svg(panels, figsize=(11, 6.5))
