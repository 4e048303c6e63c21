"""The stream cases that cannot pass yet, and why. Strict: once one passes, its line here has to go."""

import pytest

NOT_YET: dict[str, str] = {
    "S67": "a model alias needs several upstreams with names of their own for models",
}


def mark(case_id: str, *values: object) -> object:
    """A parameter set for that case, marked as an expected failure if it stands in the table."""
    marks = [pytest.mark.xfail(strict=True, reason=NOT_YET[case_id])] if case_id in NOT_YET else []
    return pytest.param(case_id, *values, marks=marks, id="-".join([case_id, *map(str, values)]))
