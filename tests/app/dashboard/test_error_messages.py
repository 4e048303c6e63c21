"""Forms never show Pydantic's wording, whichever rule a value violates."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from app.dashboard.error_messages import readable


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


class _Model(BaseModel, extra="forbid"):
    name: str


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Annotated[str, Field(min_length=1)], "", "Must have at least 1 character"),
        (Annotated[str, Field(max_length=2)], "abc", "Must have at most 2 characters"),
        (Annotated[str, Field(pattern="^a$")], "b", "Contains invalid characters or has the wrong format"),
        (int, "many", "Must be a valid integer"),
        (float, "0,5", "Must be a valid number"),
        (bool, "perhaps", "Must be a valid boolean"),
        (Annotated[int, Field(le=1)], 2, "Must be less than or equal to 1"),
        (Literal["warn", "block"], "scold", "Must be 'warn' or 'block'"),
        (list[str], "a", "Must be a valid list"),
        (Annotated[list[str], Field(max_length=1)], ["a", "b"], "Must have at most 1 item"),
        (Annotated[int, AfterValidator(_even)], 1, "Must be even"),
        (_Model, {}, "Required"),
        (_Model, {"name": "a", "size": 1}, "Unknown field"),
    ],
)
def test_message_says_what_a_value_must_be(kind: Any, value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    message = caught.value.errors()[0]["msg"]
    assert readable(message) == said
    assert readable(message, "size") == f"size: {said[0].lower()}{said[1:]}"
