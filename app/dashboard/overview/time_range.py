"""The time range of a page, which either ends now or lies between two given times."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_LONGEST = timedelta(days=366)
_STEPS = (_MINUTE, 5 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, _DAY)
_MOST_STEPS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The time from ``since`` until ``until``, in steps of ``step_s`` seconds. ``before_name`` describes the previous
    period of the same length, as in "the day before"."""

    since: datetime
    until: datetime
    step_s: int
    before_name: str

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()

    def before(self) -> "TimeRange":
        """Return the previous period, which has the same length and steps."""
        start = self.since.timestamp() // self.step_s * self.step_s
        steps = ceil((self.until.timestamp() - start) / self.step_s)
        shift = timedelta(seconds=steps * self.step_s)
        return TimeRange(
            since=self.since - shift, until=self.until - shift, step_s=self.step_s, before_name=self.before_name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetRange:
    """A time range that ends now. It has ``steps`` steps of ``step_s`` seconds each; the last step is still in
    progress."""

    name: str
    steps: int
    step_s: int
    before_name: str

    def until(self, now: datetime) -> TimeRange:
        """Return the range that ends at ``now``."""
        last = int(now.timestamp()) // self.step_s * self.step_s
        since = datetime.fromtimestamp(last - (self.steps - 1) * self.step_s, UTC)
        return TimeRange(since=since, until=now, step_s=self.step_s, before_name=self.before_name)


PRESETS = {
    "hour": PresetRange(name="Hour", steps=60, step_s=_MINUTE, before_name="the hour before"),
    "day": PresetRange(name="Day", steps=24, step_s=_HOUR, before_name="the day before"),
    "week": PresetRange(name="Week", steps=28, step_s=6 * _HOUR, before_name="the week before"),
    "month": PresetRange(name="Month", steps=30, step_s=_DAY, before_name="in the 30 days before"),
    "quarter": PresetRange(name="90 days", steps=90, step_s=_DAY, before_name="in the 90 days before"),
}


def between(since: datetime | None, until: datetime | None, now: datetime) -> TimeRange:
    """Build the range between two times. Without ``until``, the range ends now. Without ``since``, it covers one day.

    Raises ValueError, with a message for the operator, if the range is empty or too long.
    """
    until = min(until or now, now)
    since = since or until - timedelta(days=1)
    if since >= until:
        raise ValueError("The time range must start before it ends, and must not start in the future.")
    if until - since > _LONGEST:
        raise ValueError(f"The time range must be at most {_LONGEST.days} days.")
    seconds = (until - since).total_seconds()
    step_s = next((step for step in _STEPS if seconds <= step * _MOST_STEPS), _DAY)
    return TimeRange(since=since, until=until, step_s=step_s, before_name="in the period before")
