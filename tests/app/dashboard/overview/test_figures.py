"""The figures of the overview, compared with the period before."""

from app.analytics.usage import TokenTotals
from app.dashboard.overview.figures import compared_costs


def test_each_group_is_compared_with_itself_in_the_period_before() -> None:
    used = {name: TokenTotals(requests=number) for number, name in enumerate("abc", 1)}
    now, before = [("b", used["a"]), ("a", used["b"])], [("a", used["c"]), (None, used["b"])]
    assert compared_costs(now, before) == [
        ("b", used["a"], TokenTotals()),
        ("a", used["b"], used["c"]),
        (None, TokenTotals(), used["b"]),
    ]
