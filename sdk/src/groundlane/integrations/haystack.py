"""Haystack: a component that checks replies against the documents that they are based on. Needs ``haystack-ai``.

pipeline.add_component("checker", GroundednessChecker(block_contradicted=True))
pipeline.connect("retriever.documents", "checker.documents")
pipeline.connect("generator.replies", "checker.replies")
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict, logging
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret, deserialize_secrets_inplace

from groundlane._errors import GatewayStatusError, GroundlaneError
from groundlane._transport import DEFAULT_TIMEOUT_S
from groundlane.integrations._documents import document
from groundlane.integrations._guard import REPLACEMENT, Guard, Verdict, repaired

__all__ = ["GroundednessChecker", "documents_of"]

_log = logging.getLogger(__name__)
_METADATA = ("model", "index", "finish_reason", "usage")
"""The metadata that a reply keeps when its text is changed. Other metadata, such as log probabilities, may contain the
text."""
_WORST_FIRST = ("has_contradictions", "not_checked", "has_unverifiable", "no_sources", "supported", "no_claims")


def documents_of(retrieved: Sequence[Document]) -> list[dict[str, Any]]:
    """Convert retrieved documents to ``documents`` for the gateway. Documents without text are left out."""
    return [
        document(item.content, id=item.id, score=item.score, metadata=item.meta) for item in retrieved if item.content
    ]


@component
class GroundednessChecker:
    """Checks each claim of each reply against the full text of all documents.

    ``max_claims`` limits the number of claims that are judged per reply; None means no limit. With
    ``block_contradicted``, a contradicted claim is replaced by a correction from the gateway's LLM judge, or removed if
    there is no correction or this caller may not use an LLM. The reply becomes ``replacement`` if no text is left, or
    if ``policy`` or ``options`` block it or would strip a part of it. A changed ``ChatMessage`` contains only text: no
    tool calls, reasoning or log probabilities. ``trust_threshold`` is the minimum trust score of a trusted reply.

    If no verdict is available and ``raise_on_failure`` is set, GroundlaneError is raised. Otherwise, replies are
    returned unchanged, with the verdict ``not_checked`` and ``is_trusted`` set to False, unless ``policy`` or
    ``options`` block them. ``base_url`` and ``api_key`` default to ``GROUNDLANE_BASE_URL`` and ``GROUNDLANE_API_KEY``.
    For ``in_process``, ``policy`` and ``options``, see ``groundlane.integrations.Guard``.
    """

    def __init__(
        self,
        *,
        max_claims: int | None = None,
        block_contradicted: bool = False,
        trust_threshold: float = 0.0,
        raise_on_failure: bool = True,
        replacement: str = REPLACEMENT,
        base_url: str | None = None,
        api_key: Secret = Secret.from_env_var("GROUNDLANE_API_KEY", strict=False),
        policy: str | None = None,
        options: dict[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        in_process: bool = False,
    ) -> None:
        if max_claims is not None and max_claims < 1:
            raise ValueError(f"max_claims must be 1 or more, not {max_claims}")
        if not 0 <= trust_threshold <= 1:
            raise ValueError(f"trust_threshold must be between 0 and 1, not {trust_threshold}")
        if policy is not None and (options or max_claims is not None):
            raise ValueError("policy cannot be combined with options or max_claims, because a policy has its own rules")
        self.max_claims, self.block_contradicted, self.trust_threshold = max_claims, block_contradicted, trust_threshold
        self.raise_on_failure, self.replacement = raise_on_failure, replacement
        self.base_url, self.api_key, self.policy, self.options = base_url, api_key, policy, options
        self.timeout, self.in_process = timeout, in_process
        self._guard: Guard | None = None
        self._asks_for_corrections = block_contradicted

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component for a pipeline's YAML, without the API key."""
        return default_to_dict(
            self,
            max_claims=self.max_claims,
            block_contradicted=self.block_contradicted,
            trust_threshold=self.trust_threshold,
            raise_on_failure=self.raise_on_failure,
            replacement=self.replacement,
            base_url=self.base_url,
            api_key=self.api_key.to_dict(),
            policy=self.policy,
            options=self.options,
            timeout=self.timeout,
            in_process=self.in_process,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "GroundednessChecker":
        deserialize_secrets_inplace(data["init_parameters"], keys=["api_key"])
        return default_from_dict(cls, data)

    def warm_up(self) -> None:
        """Create the client. If you don't call this, ``run`` does."""
        self._warm()

    def _warm(self) -> Guard:
        if self._guard is None:
            self._guard = Guard(
                base_url=self.base_url,
                api_key=None if self.in_process else self.api_key.resolve_value(),
                policy=self.policy,
                options=self._rules(),
                block_on="never",  # Contradicted claims are handled one by one.
                on_error="closed" if self.raise_on_failure else "open",
                timeout=self.timeout,
                in_process=self.in_process,
            )
        return self._guard

    @component.output_types(
        verified_replies=list[str] | list[ChatMessage],
        trust_score=float | None,
        verdict=str,
        claims=list[dict[str, Any]],
        claims_skipped=int,
        is_trusted=bool,
    )
    def run(
        self, replies: list[str] | list[ChatMessage], documents: list[Document], query: str | None = None
    ) -> dict[str, Any]:
        """Check ``replies`` against ``documents``. ``query`` is the user's question.

        In the output, ``verified_replies`` has the same type as ``replies``. ``trust_score`` is the ratio of supported
        claims in all replies, or None if they have no claims. ``verdict`` is the worst verdict. ``claims`` is a list of
        dicts, in which ``reply`` is the index of the reply. ``claims_skipped`` is the number of claims beyond
        ``max_claims``, which weren't judged. ``is_trusted`` is True if every reply was judged completely and is
        grounded.
        """
        given = documents_of(documents)
        return self._output(replies, [self._check(_text(reply), given, query) for reply in replies])

    @component.output_types(
        verified_replies=list[str] | list[ChatMessage],
        trust_score=float | None,
        verdict=str,
        claims=list[dict[str, Any]],
        claims_skipped=int,
        is_trusted=bool,
    )
    async def run_async(
        self, replies: list[str] | list[ChatMessage], documents: list[Document], query: str | None = None
    ) -> dict[str, Any]:
        """Like ``run``, but checks the replies concurrently."""
        given = documents_of(documents)
        checks = (self._acheck(_text(reply), given, query) for reply in replies)
        return self._output(replies, await asyncio.gather(*checks))

    def _rules(self) -> Mapping[str, Any] | None:
        """Return the options of the check, including those derived from the arguments."""
        if self.policy is not None:
            return None
        rules = {"contradiction_action": "correct"} if self._asks_for_corrections else {}
        if self.max_claims is not None:
            return {**rules, "max_claims": self.max_claims, **(self.options or {})}
        return {**rules, **(self.options or {})} or None

    def _check(self, text: str, documents: Sequence[Mapping[str, Any]], query: str | None) -> Verdict:
        try:
            return self._judged(self._warm().check(text, documents, question=query))
        except GroundlaneError as error:
            return self._check(text, documents, query) if self._stop_corrections(error) else self._failed(error)

    async def _acheck(self, text: str, documents: Sequence[Mapping[str, Any]], query: str | None) -> Verdict:
        guard = self._warm()
        try:
            return self._judged(await guard.acheck(text, documents, question=query))
        except GroundlaneError as error:
            refused = self._guard is not guard or self._stop_corrections(error)
            return await self._acheck(text, documents, query) if refused else self._failed(error)

    def _stop_corrections(self, error: GroundlaneError) -> bool:
        """Stop asking for corrections if ``error`` says that this caller may not use an LLM. Return whether it does."""
        if not self._asks_for_corrections or "contradiction_action" in (self.options or {}):
            return False
        if not isinstance(error, GatewayStatusError) or error.code != "llm_check_not_allowed":
            return False
        self._asks_for_corrections, self._guard = False, None
        _log.warning("Contradicted claims are removed, not corrected: {error}", error=error)
        return True

    def _failed(self, error: GroundlaneError) -> Verdict:
        if self.raise_on_failure:
            raise error
        _log.warning("A reply was not checked: {error}", error=error)
        return Verdict(blocked=False, reason=str(error), error=error)

    def _judged(self, verdict: Verdict) -> Verdict:
        if verdict.name == "not_checked" and self.raise_on_failure:
            raise GroundlaneError("The gateway has no judge, so the reply was not checked.")
        return verdict

    def _output(self, replies: Sequence[str | ChatMessage], verdicts: Sequence[Verdict]) -> dict[str, Any]:
        results = [verdict.result for verdict in verdicts if verdict.result is not None]
        total = sum(result.total_claims for result in results)
        score = sum(result.supported_count for result in results) / total if total else None
        names = {verdict.name for verdict in verdicts}
        trusted = bool(verdicts) and all(verdict.is_trusted for verdict in verdicts)
        return {
            "verified_replies": [self._verified(*pair) for pair in zip(replies, verdicts, strict=True)],
            "trust_score": score,
            "verdict": next((name for name in _WORST_FIRST if name in names), "no_claims"),
            "claims": [claim for index, verdict in enumerate(verdicts) for claim in _claims(index, verdict)],
            "claims_skipped": sum(result.claims_skipped for result in results),
            "is_trusted": trusted and (score is None or score >= self.trust_threshold),
        }

    def _verified(self, reply: str | ChatMessage, verdict: Verdict) -> str | ChatMessage:
        if not verdict.blocked and not (self.block_contradicted and verdict.contradicted):
            return reply
        said = repaired(_text(reply), verdict, self.replacement)
        if isinstance(reply, str):
            return said
        known = {name: reply.meta[name] for name in _METADATA if name in reply.meta}
        return ChatMessage.from_assistant(said, name=reply.name, meta=known)


def _text(reply: str | ChatMessage) -> str:
    return reply if isinstance(reply, str) else "\n".join(reply.texts)


def _claims(index: int, verdict: Verdict) -> list[dict[str, Any]]:
    found = verdict.result.claims if verdict.result is not None else ()
    return [
        {
            "reply": index,
            "claim": claim.text,
            "verdict": claim.verdict,
            "confidence": claim.confidence,
            "explanation": claim.explanation,
            "correction": claim.correction,
            "evidence": claim.best_source.content if claim.best_source else None,
            "document_id": claim.best_source.document_id if claim.best_source else None,
        }
        for claim in found
    ]
