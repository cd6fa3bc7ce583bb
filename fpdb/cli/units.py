"""Numbers with their units, rounded for people."""


def number(value: float) -> str:
    """Write a number: a large one whole, a small one with two digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def size(count: float) -> str:
    """Write a number of bytes, in units of a thousand."""
    units = ["PB", "TB", "GB", "MB", "kB", "B"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop()
    return f"{count:.3g} {units[-1]}"


def time(seconds: float) -> str:
    """Write a time; from a minute on, with the largest unit that it has two of."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return (
                f"{seconds / length:,.0f} {unit}"
                if seconds >= 100 * length
                else f"{seconds / length:.2g} {unit}"
            )
    return f"{seconds:.3g} s"
