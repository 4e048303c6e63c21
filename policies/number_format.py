"""Formats numbers for reasons: scores with two decimals, and numbers in rules as given."""


def score(value: float) -> str:
    """Format ``value`` with two decimals."""
    return f"{value:.2f}"


def number(value: float) -> str:
    """Format ``value`` without a redundant ``.0``: 90, 0.7."""
    return str(whole(value))


def whole(value: float) -> float | int:
    """Convert ``value`` to an int if it is a whole number, so that JSON shows 400 rather than 400.0."""
    return int(value) if float(value).is_integer() else value


def share(ratio: float) -> str:
    """Format a measured ratio in whole percent."""
    return f"{ratio:.0%}"


def limit(ratio: float) -> str:
    """Format a ratio from a rule in percent, with the digits as given."""
    return f"{ratio * 100:g}%"


def share_below(ratio: float, limit: float) -> str:
    """Format a measured ratio below ``limit`` in percent: whole, or with as many decimals as distinguish it from
    ``limit``."""
    digits = next((digits for digits in range(10) if round(ratio * 100, digits) < round(limit * 100, 10)), 10)
    return f"{ratio * 100:.{digits}f}%"
