"""Guardrails AI: a validator that checks text against documents. Needs ``guardrails-ai``.

guard = Guard().use(Grounded(on_fail="exception"))
guard.validate(text, metadata={"documents": ["..."]})
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from guardrails.classes.validation.validation_result import ErrorSpan, FailResult, PassResult, ValidationResult
from guardrails.validator_base import Validator, register_validator

from groundlane.integrations._documents import document
from groundlane.integrations._guard import REPLACEMENT, Guard, Verdict, repaired

__all__ = ["Grounded"]

_CONTINUES = "groundlane_stream_continues"
"""A key in the metadata of a stream, set once a part of the stream has been validated."""


@register_validator(name="groundlane/grounded", data_type="string")
class Grounded(Validator):
    """Fails if the text is blocked. ``metadata["documents"]`` is a list of strings, or of mappings with ``text`` and
    optional metadata (``source``, ``relevance_score``, ``age_days``). ``metadata["question"]`` is optional: the user's
    message that the text answers, as a string.

    With ``on_fail="fix"``, contradicted claims are replaced by their corrections or removed. If no text is left, or if
    the text is blocked for another reason, the validator returns ``replacement``. The other arguments are passed to
    ``groundlane.integrations.Guard``.

    A stream is validated sentence by sentence. Only the first part can directly answer the question, so the question is
    unknown for the rest. If the guard decides at the end, the whole text is validated then.
    """

    required_metadata_keys: ClassVar[list[str]] = ["documents"]

    def __init__(
        self,
        on_fail: str | Callable[..., Any] | None = None,
        *,
        replacement: str = REPLACEMENT,
        guard: Guard | None = None,
        **options: Any,
    ) -> None:
        super().__init__(on_fail=on_fail)
        self._replacement = replacement
        self._guard = guard or Guard(**options)

    def _chunking_function(self, chunk: str) -> list[str]:
        """See ``Validator``. An empty list holds the text back. Text that is still held at the end is validated in any
        case."""
        return [] if self._guard.decides_at_end else super()._chunking_function(chunk)

    def validate_stream(self, chunk: Any, metadata: dict[str, Any], **options: Any) -> ValidationResult | None:
        """See ``Validator``. Each part is validated with the metadata that is returned for the previous one."""
        result = super().validate_stream(chunk, metadata, **options)
        if result is not None:
            result.metadata = {**(result.metadata or {}), _CONTINUES: True}
        return result

    def _validate(self, value: Any, metadata: dict[str, Any]) -> ValidationResult:
        documents = metadata.get("documents")
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise ValueError('metadata["documents"] must be a list of strings or mappings')
        question = None if _CONTINUES in metadata else metadata.get("question")
        verdict = self._guard.check(
            str(value),
            [_document(item) for item in documents],
            question=question if isinstance(question, str) else None,
        )
        found = {**metadata, "grounding": verdict.as_dict()}
        if not verdict.blocked:
            return PassResult(metadata=found)
        return FailResult(
            error_message=f"Not grounded in the documents: {verdict.reason}.",
            fix_value=repaired(str(value), verdict, self._replacement),
            error_spans=_spans(verdict),
            metadata=found,
        )


def _document(item: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(item, str):
        return document(item)
    text = item.get("text")
    if not isinstance(text, str):
        raise ValueError('a document in metadata["documents"] needs a "text"')
    return document(text, id=item.get("id"), metadata=item)


def _spans(verdict: Verdict) -> list[ErrorSpan]:
    return [
        ErrorSpan(start=claim.span.start, end=claim.span.end, reason="The documents contradict this.")
        for claim in verdict.contradicted
        if claim.span is not None
    ]
