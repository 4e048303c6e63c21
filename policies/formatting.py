"""How numbers read in a reason: scores with two decimals, the numbers of a rule as they were given."""


def score(value: float) -> str:
    return f"{value:.2f}"


def number(value: float) -> str:
    """``value`` without a needless ``.0``: 90, 0.7."""
    return str(whole(value))


def whole(value: float) -> float | int:
    """``value`` as an integer where it is one, so that JSON shows 400 rather than 400.0."""
    return int(value) if float(value).is_integer() else value


def share(ratio: float) -> str:
    """A share that was measured, in whole percent."""
    return f"{ratio:.0%}"


def limit(ratio: float) -> str:
    """A share that a rule gives, in percent with the digits it has."""
    return f"{ratio * 100:g}%"
