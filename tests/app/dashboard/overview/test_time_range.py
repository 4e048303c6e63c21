from datetime import UTC, datetime, timedelta

import pytest

from app.dashboard.overview.time_range import PRESETS, between

NOW = datetime(2026, 3, 4, 15, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_ends_now_and_the_previous_period_is_as_long(name: str) -> None:
    range = PRESETS[name].until(NOW)
    before = range.before()
    assert range.until == NOW
    assert range.since.timestamp() % range.step_s == 0
    assert before.seconds == range.seconds
    assert before.until <= range.since + timedelta(seconds=range.step_s)
    assert (range.since - before.since).total_seconds() == PRESETS[name].steps * range.step_s


@pytest.mark.parametrize(
    ("hours", "step_s"), [(0.5, 60), (2, 60), (3, 300), (10, 300), (24, 3_600), (24 * 7, 3 * 3_600), (24 * 366, 86_400)]
)
def test_custom_range_has_steps_that_fit_a_chart(hours: float, step_s: int) -> None:
    range = between(NOW - timedelta(hours=hours), NOW, NOW)
    assert range.step_s == step_s
    assert range.before().until <= range.since + timedelta(seconds=step_s)
    assert (range.since - range.before().since).total_seconds() % step_s == 0


def test_open_ended_range_lasts_a_day_or_ends_now() -> None:
    assert between(None, NOW, NOW).since == NOW - timedelta(days=1)
    assert between(NOW - timedelta(hours=1), None, NOW).until == NOW
    assert between(NOW - timedelta(hours=1), NOW + timedelta(days=9), NOW).until == NOW


@pytest.mark.parametrize(
    ("since", "until"), [(NOW, NOW), (NOW + timedelta(hours=1), None), (NOW - timedelta(days=400), NOW)]
)
def test_empty_or_very_long_range_is_refused(since: datetime, until: datetime | None) -> None:
    with pytest.raises(ValueError, match=r"\AThe time range must "):
        between(since, until, NOW)
