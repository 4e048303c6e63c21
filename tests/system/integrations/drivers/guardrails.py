"""A Guardrails AI guard with the validator."""

import re
from collections.abc import Sequence
from typing import Any

from groundlane.integrations.guardrails import Grounded
from guardrails import Guard
from guardrails.errors import ValidationError


def validate(
    text: str, documents: Sequence[Any], on_fail: str = "noop", question: Any = None, **options: Any
) -> dict[str, Any]:
    guard = Guard().use(Grounded(on_fail=on_fail, **options))
    try:
        outcome = guard.validate(text, metadata={"documents": documents, "question": question})
    except ValidationError as error:
        return {"exception": str(error)}
    (summary,) = outcome.validation_summaries or [None]
    return {
        "passed": outcome.validation_passed,
        "output": outcome.validated_output,
        "why": summary.failure_reason if summary else None,
        "spans": [[span.start, span.end] for span in (summary.error_spans or [])] if summary else [],
    }


def stream(text: str, documents: Sequence[Any], question: Any = None, **options: Any) -> list[Any]:
    """Validate a streamed reply, with ``fix``."""
    guard = Guard().use(Grounded(on_fail="fix", **options))

    def model(*_: Any, **__: Any) -> Any:
        return iter(re.findall(r"\S+\s*", text))

    metadata = {"documents": documents, "question": question}
    outcomes = guard(model, messages=[{"role": "user", "content": "?"}], metadata=metadata, stream=True)
    return [outcome.validated_output for outcome in outcomes]
