"""Describes how a figure has changed since the previous period. ``period`` is a phrase such as ``the day before`` or
``in the period before``."""

from app.dashboard.formatting import percent

_SAME = 0.005
"""Relative changes smaller than this aren't mentioned."""


def change(now: float | None, before: float | None, period: str) -> str:
    """Describe the change in an amount, such as ``12% more than the day before``. Return "" if a period has no
    figure."""
    if now is None or before is None:
        return ""
    if not before:
        return f"none {period}" if now else f"none {period} either"
    difference = (now - before) / before
    if abs(difference) < _SAME:
        return f"the same as {period}"
    if difference >= 1:
        return f"{now / before:,.1f} times as much as {period}"
    return f"{percent(abs(difference), 0)} {'more' if difference > 0 else 'less'} than {period}"


def change_in_points(now: float | None, before: float | None, period: str) -> str:
    """Describe the change in a ratio, such as ``up 1.2 points from 3.1% the day before``. Return "" if a period has no
    figure."""
    if now is None or before is None:
        return ""
    points = round((now - before) * 100, 1)
    if points == 0:
        return f"the same as {period}"
    return f"{'up' if points > 0 else 'down'} {abs(points):g} points from {percent(before)} {period}"
