"""Draw how good a recipe is, as SVG: precision and recall against k, distances, bit balance."""

import published

_COLOURS = {"precision": "#1a5fb4", "recall": "#b3261e"}


def draw(lines, quality):
    """Draw a recipe's quality below a heading of a few lines."""

    def panels(figure):
        figure.suptitle("\n".join(lines), fontsize=10)
        curves, distances, balance = figure.subplots(1, 3)
        ks = [rating.k for rating in quality.ratings]
        for name, colour in _COLOURS.items():
            shares = [getattr(each, name) for each in quality.ratings]
            curves.plot(ks, shares, color=colour, label=name)
            similar = getattr(quality.similar, name, None)
            if similar is not None:  # it doesn't depend on k
                curves.axhline(similar, color=colour, linestyle="--", label=f"similar {name}")
        curves.set(xlabel="k", ylim=(0, 1.02))
        curves.legend()
        for name, counts in (
            ("true pairs", quality.true_distances),
            ("other pairs, drawn at random", quality.other_distances),
        ):
            shares = [count / max(sum(counts), 1) for count in counts]
            distances.bar(range(len(shares)), shares, width=1, alpha=0.55, label=name)
        distances.set(xlabel="distance")
        distances.legend()
        balance.bar(range(quality.bits), quality.bit_shares, width=1)
        balance.set(xlabel="bit", ylim=(0, 1), title="share of fingerprints with the bit set")

    return published.svg(panels, figsize=(12, 4.4))
