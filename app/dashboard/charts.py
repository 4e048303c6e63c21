"""Draws charts on the server as inline SVG. They need no script and comply with the page's content security policy.

An SVG stretches to the available width, so labels are HTML text around the SVG, not inside it. Colours are CSS classes
(``tone-…`` in style.css). The legend names every series, and a table below the chart has all numbers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from markupsafe import Markup, escape

from app.dashboard.formatting import compact, count

_WIDTH, _HEIGHT = 1_000.0, 100.0
_TICK = 10.0
Show = Callable[[float | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series with one value per point of the axis, or None for a gap. ``tone`` is a class in style.css (``block``,
    ``good``, …). The legend links to ``link``, which lists the requests that were counted."""

    name: str
    values: Sequence[float | None]
    tone: str
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """A segment of a bar. Its value is a share of the whole or a time in milliseconds."""

    name: str
    value: float
    tone: str
    start: float | None = None
    """The start of the segment. If None, the segment starts where the previous one ends."""


def tag(name: str, *content: str, **attributes: object) -> Markup:
    """Build an element. ``content`` and attribute values are escaped unless they are Markup. ``class_`` becomes
    ``class``, and ``a_b`` becomes ``a-b``. Attributes that are None are omitted."""
    # A page has thousands of elements, for which Markup.format would take longer than the database.
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{''.join(map(escape, content))}</{name}>")  # noqa: S704  (all of it is escaped)


def stacked(
    title: str,
    axis: Sequence[str],
    series: Sequence[Series],
    *,
    show: Show = count,
    low: bool = False,
    before: Series | None = None,
    links: Sequence[str] | None = None,
    ticks: Sequence[Markup] = (),
) -> Markup:
    """Draw a stacked column chart with one column per label of ``axis``. ``before`` is drawn as a line for comparison
    with the column totals. Each column links to its URL in ``links``. ``ticks`` are drawn above."""
    drawn, top = _columns(len(axis), series, least=_largest([before] if before else []))
    shown = [*series, *_drawn_before(before, drawn, len(axis), top)]
    return _chart(title, axis, shown, drawn, top, show, low=low, links=links, ticks=ticks)


def lines(
    title: str,
    axis: Sequence[str],
    series: Sequence[Series],
    *,
    show: Show = count,
    top: float | None = None,
    low: bool = False,
    before: Series | None = None,
    links: Sequence[str] | None = None,
    ticks: Sequence[Markup] = (),
) -> Markup:
    """Draw a line per series, with gaps where values are missing. ``top`` is the end of the y axis; the default is the
    largest value, rounded up. ``before`` is drawn as an additional line for comparison. Each point links to its URL in
    ``links``. ``ticks`` are drawn above."""
    top = top or nice_top(_largest([*series, before] if before else series))
    step = _WIDTH / max(1, len(axis))
    drawn = [
        tag("path", d=_curve(values, step, top), class_=f"curve{dots} tone-{each.tone}")
        for each in series
        for values, dots in ((each.values, ""), (_lone(each.values), " dots"))
    ]
    shown = [*series, *_drawn_before(before, drawn, len(axis), top)]
    return _chart(title, axis, shown, drawn, top, show, low=low, links=links, ticks=ticks)


def histogram(
    title: str, edges: Sequence[float], series: Sequence[Series], *, marker: float | None = None, show: Show = count
) -> Markup:
    """Draw a stacked histogram with one bin between each pair of ``edges``. ``marker`` is the position of an optional
    vertical line."""
    axis = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    drawn, top = _columns(len(axis), series)
    first, last = edges[0], edges[-1]
    if marker is not None:
        at = (min(max(marker, first), last) - first) / (last - first) * _WIDTH
        drawn.append(tag("line", x1=at, x2=at, y1=0, y2=_HEIGHT, class_="marker"))
    ends = [f"{first:g}", f"{(first + last) / 2:g}", f"{last:g}"]
    return _chart(title, axis, series, drawn, top, show, low=False, marks=ends)


def ticks(events: Iterable[tuple[float, str]]) -> list[Markup]:
    """Draw a tick with a tooltip for each event, given as a position from 0 to 1 and the tooltip's text."""
    drawn = []
    for at, title in events:
        x = min(max(at, 0), 1) * _WIDTH
        drawn.append(tag("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="tick-line"))
        tick = {"x": x - _TICK / 2, "y": 0, "width": _TICK, "height": _TICK}
        drawn.append(tag("rect", tag("title", title), **tick, class_="tick"))
    return drawn


def share_bar(parts: Sequence[BarPart], *, label: str, tall: bool = False) -> Markup:
    """Draw a bar divided in proportion to its parts. It is empty if they sum to zero."""
    total = sum(part.value for part in parts)
    return _bar(parts, total, label, tall)


def timing_bar(parts: Sequence[BarPart], total_ms: float, *, label: str) -> Markup:
    """Draw a bar from 0 to ``total_ms``, with each part at its position in time."""
    return _bar(parts, total_ms, label, tall=True)


def nice_top(value: float, *, whole: bool = False) -> float:
    """Return the end of an axis for values up to ``value``. It is a round number whose half is also round. With
    ``whole``, the half is an integer too."""
    least = 2.0 if whole else 0.0
    if value <= least:
        return least or 1.0
    power = 10 ** math.floor(math.log10(value))
    ends = (factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20))
    return float(next(end for end in ends if end >= value * (1 - 1e-9) and not (whole and end % 2)))


def time_axis(times: Sequence[datetime], step_s: float) -> list[str]:
    """Build axis labels for ``times``: the time of day, and also the date if they span more than a day. Labels are in
    UTC, and app.js converts them to the reader's time zone. Labels of daily steps stay in UTC, because those steps
    begin at midnight UTC."""
    if step_s >= 86_400:
        return [f"{at.day} {at:%b}" for at in times]
    far = bool(times) and (times[-1] - times[0]).total_seconds() >= 86_400
    return [
        tag(
            "time",
            f"{at.day} {at:%b %H:%M}" if far else f"{at:%H:%M}",
            datetime=at.isoformat(),
            data_form="dhm" if far else "hm",
        )
        for at in times
    ]


def _largest(series: Sequence[Series]) -> float:
    return max((value for each in series for value in each.values if value is not None), default=0)


def _drawn_before(before: Series | None, drawn: list[Markup], size: int, top: float) -> list[Series]:
    """Add the line for the previous period, if any, to ``drawn``. Return its series."""
    if before is None:
        return []
    curve = _curve(before.values, _WIDTH / max(1, size), top)
    drawn.append(tag("path", d=curve, class_=f"curve before tone-{before.tone}"))
    return [before]


def _columns(size: int, series: Sequence[Series], *, least: float = 0) -> tuple[list[Markup], float]:
    """Draw stacked columns. Also return the end of the y axis, which is at least ``least``."""
    whole = all(isinstance(value, int) for each in series for value in each.values)
    highest = max((sum(each.values[at] or 0 for each in series) for at in range(size)), default=0)
    top = nice_top(max(highest, least), whole=whole)
    step = _WIDTH / max(1, size)
    drawn: list[Markup] = []
    for at in range(size):
        below = 0.0
        for each in series:
            if (height := (each.values[at] or 0) / top * _HEIGHT) <= 0:
                continue
            below += height
            place = {"x": (at + 0.08) * step, "y": _HEIGHT - below, "width": step * 0.84, "height": height}
            drawn.append(tag("rect", **place, class_=f"tone-{each.tone}"))
    return drawn, top


def _chart(
    title: str,
    axis: Sequence[str],
    series: Sequence[Series],
    drawn: Sequence[Markup],
    top: float,
    show: Show,
    *,
    low: bool,
    marks: Sequence[str] | None = None,
    links: Sequence[str] | None = None,
    ticks: Sequence[Markup] = (),
) -> Markup:
    step = _WIDTH / max(1, len(axis))
    grid = [tag("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid-line") for y in (0.0, _HEIGHT / 2, _HEIGHT)]
    hits = [
        tag(
            "rect",
            x=at * step,
            y=0,
            width=step,
            height=_HEIGHT,
            class_="hit",
            data_tip=_said(label, series, at, show),
            data_href=links[at] if links else None,  # for app.js; keyboard users have the same links in the table
        )
        for at, label in enumerate(axis)
    ]
    mark = compact if show is count else show
    ys = tag("div", *(tag("span", mark(value)) for value in (top, top / 2, 0)), class_="ys", aria_hidden="true")
    xs = tag("div", *(tag("span", label) for label in marks or _marks(axis)), class_="xs", aria_hidden="true")
    plot = tag("div", ys, _svg(*grid, *drawn, *hits, *ticks, label=title), xs, class_="plot low" if low else "plot")
    head = tag("figcaption", tag("h3", title), _legend(series), class_="chart-head")
    return tag("figure", head, plot, _table(title, _linked(axis, links), series, show), class_="chart")


def _svg(*drawn: Markup, label: str, class_: str | None = None) -> Markup:
    box = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    attributes = {"viewBox": box, "preserveAspectRatio": "none", "role": "img", "aria_label": label}
    return tag("svg", *drawn, class_=class_, **attributes)


def _lone(values: Sequence[float | None]) -> list[float | None]:
    """Return the values that have a gap on both sides, with None for all others. They are drawn as dots, because a line
    with a single point would be almost invisible."""
    beside = [None, *values, None]
    return [
        value if before is None and after is None else None
        for before, value, after in zip(beside, values, beside[2:], strict=False)
    ]


def _curve(values: Sequence[float | None], step: float, top: float) -> str:
    path, drawing = [], False
    for at, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        x, y = (at + 0.5) * step, _HEIGHT - min(value / top, 1) * _HEIGHT
        # A point between two gaps is a stroke of length zero. Round line caps make it a dot.
        path.append(f"L{x:.1f} {y:.1f}" if drawing else f"M{x:.1f} {y:.1f}h.01")
        drawing = True
    return "".join(path)


def _bar(parts: Sequence[BarPart], total: float, label: str, tall: bool) -> Markup:
    drawn, end = [], 0.0
    for part in parts:
        start = end if part.start is None else part.start
        end = start + part.value
        if total > 0 and part.value > 0:
            drawn.append(
                tag(
                    "rect",
                    x=start / total * _WIDTH,
                    y=0,
                    width=part.value / total * _WIDTH,
                    height=_HEIGHT,
                    class_=f"tone-{part.tone}",
                    data_tip=part.name,
                )
            )
    return _svg(*drawn, label=label, class_="bar tall" if tall else "bar")


def _legend(series: Sequence[Series]) -> Markup:
    entries = (
        tag("li", tag("span", class_=f"swatch tone-{each.tone}", aria_hidden="true"), _named(each)) for each in series
    )
    return tag("ul", *entries, class_="legend")


def _named(series: Series) -> str:
    return series.name if series.link is None else tag("a", series.name, href=series.link, title="List these requests")


def _table(title: str, axis: Sequence[str], series: Sequence[Series], show: Show) -> Markup:
    heads = tag("tr", tag("th", "", scope="col"), *(tag("th", each.name, scope="col", class_="num") for each in series))
    rows = (
        tag(
            "tr",
            tag("th", label, scope="row"),
            *(tag("td", show(each.values[at]), class_="num") for each in series),
        )
        for at, label in enumerate(axis)
    )
    table = tag("table", tag("thead", heads), tag("tbody", *rows), class_="data")
    scroll = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"{title}, as a table")
    return tag("details", tag("summary", "As a table"), scroll, class_="chart-data")


def _linked(axis: Sequence[str], links: Sequence[str] | None) -> Sequence[str]:
    return axis if links is None else [tag("a", label, href=url) for label, url in zip(axis, links, strict=True)]


def _said(label: str, series: Sequence[Series], at: int, show: Show) -> str:
    plain = label.striptags() if isinstance(label, Markup) else label
    return "\n".join([plain, *(f"{each.name}: {show(each.values[at])}" for each in series)])


def _marks(axis: Sequence[str]) -> list[str]:
    """Return the labels to show: the first, the last, and up to three in between."""
    shown = min(len(axis), 5)
    return list(axis) if shown < 2 else [axis[round(at * (len(axis) - 1) / (shown - 1))] for at in range(shown)]


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
