"""Formatting of numbers in reasons: scores with two decimals, the numbers of a rule as given."""


def score(value: float) -> str:
    """``value`` with two decimals."""
    return f"{value:.2f}"


def number(value: float) -> str:
    """``value`` without a superfluous ``.0``: 90, 0.7."""
    return str(whole(value))


def whole(value: float) -> float | int:
    """``value`` as an int if it is a whole number, so that JSON shows 400 rather than 400.0."""
    return int(value) if float(value).is_integer() else value


def share(ratio: float) -> str:
    """A measured share, in whole percent."""
    return f"{ratio:.0%}"


def limit(ratio: float) -> str:
    """A share from a rule, in percent with its own digits."""
    return f"{ratio * 100:g}%"


def share_below(ratio: float, limit: float) -> str:
    """A measured share that is below ``limit``, in percent: whole, or with the decimals that tell it from ``limit``."""
    digits = next((digits for digits in range(10) if round(ratio * 100, digits) < round(limit * 100, 10)), 10)
    return f"{ratio * 100:.{digits}f}%"
