"""The extension point of policies: a category is a rules model and an evaluator, listed in ``policies.registry``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict

from judges.types import Consistency
from policies.types import Phase, PolicyInputs, Violation


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("Input contains a lone surrogate, which cannot be sent or stored") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""A string in a rule; lone surrogates are rejected."""


class Rules(BaseModel):
    """Base class of all rules models: unknown rules are rejected, and values are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryResult:
    """The result of evaluating a category in one phase.

    ``reason``, ``reason_code`` and ``metadata`` are used if there are no violations; otherwise they come from the
    violations. ``notes`` are always added to the metadata, and ``warnings`` to its list of warnings.
    """

    violations: tuple[Violation, ...] = ()
    reason: str = ""
    reason_code: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class RulesError(ValueError):
    """A policy's rules are invalid. ``errors`` lists each error as ``{"loc": ["rules", name], "msg": text}``."""

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        self.errors = [dict(error) for error in errors]
        super().__init__("; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in self.errors))


class Category(Protocol):
    """A kind of policy: the model of its rules, and their evaluation."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> type[Rules]: ...

    def evaluate(self, phase: Phase, rules: Any, inputs: PolicyInputs) -> CategoryResult | None:
        """Check ``inputs`` at ``phase``. Return None, so that no decision is made, if the category checks nothing in
        this phase."""
        ...


def comparison_gaps(found: Consistency | None) -> dict[str, Any]:
    """Return metadata that says why statements, or some pairs of them, were not compared."""
    if found is None:
        return {}
    gaps: dict[str, Any] = {} if found.reason is None else {"not_compared": found.reason}
    return {**gaps, "pairs_skipped": found.skipped} if found.skipped else gaps
