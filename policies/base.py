"""What a policy category is. One module a category: a rules model and an evaluator, listed in ``policies.registry``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict

from judges.types import Consistency
from policies.types import Phase, Record, Violation


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("Input holds half of a surrogate pair, which cannot be sent or stored") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A string in a rule."""


class Rules(BaseModel):
    """Base of every rules model: an unknown rule is refused and nothing is coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a category finds in one phase. ``reason``, ``reason_code`` and ``metadata`` stand for the case without
    violations; with violations the engine makes them from those. ``notes`` are in the metadata in either case, and
    ``warnings`` among those that it lists."""

    violations: tuple[Violation, ...] = ()
    reason: str = ""
    reason_code: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class RulesError(ValueError):
    """The rules of a policy are not valid. ``errors``: what is wrong, as ``{"loc": ["rules", name], "msg": text}``."""

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        self.errors = [dict(error) for error in errors]
        super().__init__("; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in self.errors))


class Category(Protocol):
    """The extension point of policies."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> type[Rules]: ...

    def evaluate(self, phase: Phase, rules: Any, record: Record) -> Findings | None:
        """Check ``record`` at ``phase``. None: this category has nothing to say there, and no decision is made."""
        ...


def comparison_gaps(found: Consistency | None) -> dict[str, Any]:
    """The part of a decision's metadata that says why a comparison of statements was not made, or not of every pair."""
    if found is None:
        return {}
    gaps: dict[str, Any] = {} if found.reason is None else {"not_compared": found.reason}
    return {**gaps, "pairs_skipped": found.skipped} if found.skipped else gaps
