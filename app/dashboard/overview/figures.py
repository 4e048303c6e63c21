"""The figures and charts of the overview, each compared with the previous period."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from markupsafe import Markup

from app.analytics.statistics import RequestStats
from app.analytics.usage import TokenTotals
from app.dashboard import charts
from app.dashboard.charts import Series
from app.dashboard.formatting import count, duration, many, money, percent, whole_percent
from app.dashboard.labels import ACTIONS
from app.dashboard.overview.changes import change, change_in_points
from app.dashboard.overview.time_range import TimeRange

Buckets = Sequence[tuple[datetime, RequestStats]]

NAMED_ACTIONS = [(action, name.capitalize()) for action, name in ACTIONS.items()]
NAMED_PARTS = (("upstream", "Upstream"), ("judge", "Judge"), ("gateway", "Gateway"))
_VERDICTS = (
    ("supported", "Supported"),
    ("has_unverifiable", "Unverifiable"),
    ("has_contradictions", "Contradicted"),
    ("no_claims", "No claims"),
    ("no_sources", "No sources"),
    ("not_checked", "Not checked"),
)
_FLAGGED = "warn", "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodNumbers:
    """The statistics of a time range: totals and time steps."""

    totals: RequestStats
    buckets: Buckets
    usage: Mapping[datetime, TokenTotals]

    def used(self) -> TokenTotals:
        """Return the usage over the whole range."""
        total = TokenTotals()
        for each in self.usage.values():
            total.merge(each)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewFigure:
    """A figure with a note, and a description of its change since the previous period. The figure links to the list of
    requests, with the filter or sort order in ``shows``."""

    name: str
    value: str
    note: str = ""
    tone: str = ""
    change: str = ""
    shows: Mapping[str, str] = field(default_factory=dict)


def figures(now: PeriodNumbers, before: PeriodNumbers, range: TimeRange) -> list[OverviewFigure]:
    """Return the figures at the top of the page."""
    totals, past, period = now.totals, before.totals, range.before_name
    flagged, flagged_past = _share(totals, _FLAGGED), _share(past, _FLAGGED)
    latency, latency_past = (of.latency_ms.get("total", {}) for of in (totals, past))
    used, used_past = now.used(), before.used()
    blocked, warned = totals.actions["block"], sum(totals.actions[action] for action in _FLAGGED)
    return [
        OverviewFigure(
            name="Requests",
            value=count(totals.requests),
            note=_pace(totals.requests, range.seconds),
            change=change(totals.requests, past.requests, period),
        ),
        OverviewFigure(
            name="Blocked",
            value=percent(totals.rate("block")),
            note=_requests(blocked),
            tone="bad" if blocked else "",
            change=change_in_points(totals.rate("block"), past.rate("block"), period),
            shows={"action": "block"},
        ),
        OverviewFigure(
            name="Warned or dropped",
            value=percent(flagged),
            note=_requests(warned),
            change=change_in_points(flagged, flagged_past, period),
            shows={"action": "warn"},
        ),
        OverviewFigure(
            name="Trust",
            value=whole_percent(totals.trust_score),
            note=f"mean of {many(totals.trust_count, 'judged reply', 'judged replies')}",
            change=change_in_points(totals.trust_score, past.trust_score, period),
            shows={"sort": "trust"},
        ),
        OverviewFigure(
            name="Total latency, p95",
            value=duration(latency.get("p95")),
            note=f"median {duration(latency.get('p50'))}",
            change=change(latency.get("p95"), latency_past.get("p95"), period),
            shows={"sort": "-latency"},
        ),
        OverviewFigure(
            name="Cost",
            value="price unknown" if used.cost_known is None else money(used.cost),
            note=_priced(used),
            change=change(_float(used.cost_known), _float(used_past.cost_known), period),
            shows={"sort": "-tokens"},
        ),
    ]


def compared_costs(
    now: Sequence[tuple[str | None, TokenTotals]], before: Sequence[tuple[str | None, TokenTotals]]
) -> list[tuple[str | None, TokenTotals, TokenTotals]]:
    """Return the usage of each group in this period and the previous one. Groups that were used only in the previous
    period come last."""
    past, names = dict(before), {name for name, _ in now}
    compared = [(name, used, past.get(name, TokenTotals())) for name, used in now]
    return compared + [(name, TokenTotals(), used) for name, used in before if name not in names]


def overview_charts(
    now: PeriodNumbers,
    before: PeriodNumbers,
    range: TimeRange,
    link: Callable[[datetime, datetime], str],
    listed: Callable[..., str],
    changes: Sequence[tuple[datetime, str]] = (),
) -> list[Markup]:
    """Draw the charts of the page. A line shows the previous period. ``link`` returns the URL of the requests between
    two times; each point of a chart links to its requests. ``listed`` returns the URL of the range's requests with a
    filter, such as ``verdict="supported"``. Ticks mark ``changes``, each a time and a description."""
    starts = [start for start, _ in now.buckets]
    links = [link(start, start + timedelta(seconds=range.step_s)) for start in starts]
    axis = charts.time_axis(starts, range.step_s)
    shift = range.since - range.before().since
    drawn_seconds = range.step_s * max(1, len(starts))
    ticks = charts.ticks(((ts - starts[0]).total_seconds() / drawn_seconds, what) for ts, what in changes)

    def series(named: Sequence[tuple[str, str]], value: Callable[[RequestStats, str], float | None]) -> list[Series]:
        found = [
            Series(name=name, tone=key, values=[value(numbers, key) for _, numbers in now.buckets])
            for key, name in named
        ]
        return [each for each in found if any(each.values)] or found[:1]

    def past(value: Callable[[RequestStats], float | None]) -> Series:
        values = [value(numbers) for _, numbers in before.buckets]
        return _before(range, [*values, *[None] * len(axis)][: len(axis)])

    def spent(name: str, value: Callable[[TokenTotals], float]) -> tuple[list[Series], Series]:
        values = [value(now.usage.get(start, TokenTotals())) for start in starts]
        earlier = [value(before.usage.get(start - shift, TokenTotals())) for start in starts]
        return [Series(name=name, tone="info", values=values)], _before(range, earlier)

    trust = [Series(name="Mean", tone="accent", values=[numbers.trust_score for _, numbers in now.buckets])]
    tokens, tokens_before = spent("Tokens", lambda used: used.tokens)
    cost, cost_before = spent("Cost", lambda used: float(used.cost))
    actions = series(NAMED_ACTIONS, lambda of, key: of.actions[key])
    verdicts = [
        replace(each, link=listed(verdict=each.tone)) for each in series(_VERDICTS, lambda of, key: of.verdicts[key])
    ]
    return [
        charts.stacked(
            "Requests by action", axis, actions, before=past(lambda of: of.requests), links=links, ticks=ticks
        ),
        charts.stacked("Requests by verdict", axis, verdicts, links=links, ticks=ticks),
        charts.lines(
            "Trust",
            axis,
            trust,
            show=whole_percent,
            top=1.0,
            before=past(lambda of: of.trust_score),
            links=links,
            ticks=ticks,
        ),
        charts.stacked(
            "Mean latency by part",
            axis,
            series(NAMED_PARTS, mean_latency),
            show=duration,
            before=past(lambda of: mean_latency(of, "total")),
            links=links,
            ticks=ticks,
        ),
        charts.stacked("Tokens", axis, tokens, before=tokens_before, links=links, ticks=ticks),
        charts.stacked("Cost", axis, cost, show=money, before=cost_before, links=links, ticks=ticks),
    ]


def mean_latency(numbers: RequestStats, part: str) -> float | None:
    """Return the mean over all requests, including those without this part, so that the means of the parts add up to
    the mean of the total."""
    times = numbers.times.get(part)
    return times.sum_ms / numbers.requests if times is not None and numbers.requests else None


def _before(range: TimeRange, values: Sequence[float | None]) -> Series:
    name = range.before_name
    return Series(name=name[:1].upper() + name[1:], tone="before", values=values)


def _pace(requests: int, seconds: float) -> str:
    """Format a rate per minute, or per hour or day if the rate per minute is less than 1."""
    for word, length in (("per minute", timedelta(minutes=1)), ("per hour", timedelta(hours=1))):
        if (number := requests / max(seconds, 1) * length.total_seconds()) >= 1:
            return f"{number:,.1f} {word}"
    return f"{requests / max(seconds, 1) * timedelta(days=1).total_seconds():,.1f} per day"


def _share(totals: RequestStats, actions: Sequence[str]) -> float | None:
    return sum(totals.actions[action] for action in actions) / totals.requests if totals.requests else None


def _requests(number: int) -> str:
    return f"{count(number)} request{'' if number == 1 else 's'}"


def _priced(used: TokenTotals) -> str:
    tokens = f"{count(used.tokens)} tokens"
    return f"{tokens}, {count(sum(used.unpriced.values()))} without a known price" if used.unpriced else tokens


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
