"""The scales on which an LLM scores a reply or its claims: how each is worded in the prompt, and how its answers are
parsed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from judges.llm.response_parsing import read_scale, read_score, read_yes_no

Read = Callable[[str], tuple[float, str | None] | None]


class LlmScoringMode(StrEnum):
    """``unit`` is 0.0 to 1.0; ``binary_yes_no`` is 1 or 0, grounded or not; ``scale_1_5`` is converted by (raw - 1) /
    4."""

    UNIT = "unit"
    BINARY = "binary_yes_no"
    SCALE = "scale_1_5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``wording`` describes the scale to the LLM, and ``field`` and ``schema`` describe the answer, which ``read``
    parses."""

    wording: str
    field: str
    schema: Mapping[str, Any]
    read: Read


_BANDS = """Give one score from 0.0 to 1.0:
0.0: made up; 0.3: poorly grounded, many statements without support; 0.5: partially grounded, some statements with
support; 0.7: mostly grounded, with minor gaps; 1.0: fully grounded, every statement can be traced to a source. Values
between are allowed."""

_STEPS = """Give one score from 1 to 5, a whole number:
1: made up; 2: poorly grounded; 3: partially grounded; 4: mostly grounded, with minor gaps; 5: fully grounded, every
statement can be traced."""

_YES_NO = """Say whether the reply is grounded: true if every statement can be traced to a source, its citations are
right and it stays within the sources; false otherwise."""

SCALES: Mapping[LlmScoringMode, Scale] = {
    LlmScoringMode.UNIT: Scale(wording=_BANDS, field="score", schema={"type": "number"}, read=read_score),
    LlmScoringMode.SCALE: Scale(
        wording=_STEPS, field="score", schema={"type": "integer", "enum": [1, 2, 3, 4, 5]}, read=read_scale
    ),
    LlmScoringMode.BINARY: Scale(wording=_YES_NO, field="grounded", schema={"type": "boolean"}, read=read_yes_no),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimScale:
    """A scale for single claims. ``schema`` describes one score in the answer, and ``values`` are the possible raw
    scores."""

    wording: str
    schema: Mapping[str, Any]
    values: range


CLAIM_SCALES: Mapping[LlmScoringMode, ClaimScale] = {
    LlmScoringMode.BINARY: ClaimScale(
        wording="""verdicts has one value for each claim, in their order: true if the sources support it; false if a
source states otherwise, or if they do not say all of it.""",
        schema={"type": "boolean"},
        values=range(2),
    ),
    LlmScoringMode.SCALE: ClaimScale(
        wording="""verdicts has one whole number from 1 to 5 for each claim, in their order:
1: a source states otherwise, or no source addresses it; 2: hardly supported; 3: supported in part; 4: mostly, with
minor gaps; 5: fully supported.""",
        schema={"type": "integer", "enum": [1, 2, 3, 4, 5]},
        values=range(1, 6),
    ),
}
