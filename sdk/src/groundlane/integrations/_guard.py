"""Gets a verdict on a text and its documents. All integrations share this module, which doesn't depend on any of their
libraries."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, get_args

import anyio.to_thread

from groundlane._client import AsyncGroundlane, Groundlane
from groundlane._errors import GatewayStatusError, GroundlaneError
from groundlane._local.checks import LocalChecks
from groundlane._results import CheckResult
from groundlane._transport import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S
from groundlane._types import Claim

BlockOn = Literal["contradicted", "ungrounded", "never"]
OnError = Literal["closed", "open"]
REPLACEMENT = "I cannot answer that from the documents at hand."
"""The default replacement for a blocked text."""

_DELIVERING = frozenset({"allow", "warn"})
"""The actions with which the gateway would deliver the whole text. With any other action, including one that a newer
gateway adds, it would withhold at least part of the text."""
_JUDGING = frozenset({"entailment_threshold", "contradiction_threshold", "max_sources_per_claim"})
"""The rules that only say how a claim is judged. Any other rule may decide about the whole text."""

_LONGEST_QUESTION = 100_000
"""The maximum length, in characters, of a question that is sent. Longer questions count as unknown, so that the gateway
doesn't reject the check. Its own limit is ten times as long by default."""

_log = logging.getLogger("groundlane.integrations")
_NOT_CALLERS_FAULT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class UngroundedError(GroundlaneError):
    """A text was blocked. The message does not quote the text. ``verdict`` has the details."""

    def __init__(self, verdict: "Verdict") -> None:
        super().__init__(f"The text is not grounded in its documents: {verdict.reason}.")
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on the text. If ``blocked``, the text must not be delivered, and ``reason`` says why. ``result`` is
    the gateway's response. If there is no response but the text may be delivered anyway, ``result`` is None and
    ``error`` is set. ``repairable`` means that contradicted claims are the only reason why the text is blocked, so the
    rest of it may be delivered."""

    blocked: bool
    reason: str
    repairable: bool = False
    result: CheckResult | None = None
    error: GroundlaneError | None = None

    @property
    def name(self) -> str:
        """``supported``, ``has_contradictions``, ``has_unverifiable``, ``no_claims``, ``no_sources`` or
        ``not_checked``."""
        return (self.result.verdict if self.result is not None else None) or "not_checked"

    @property
    def is_trusted(self) -> bool:
        return self.result is not None and self.result.grounded and not self.blocked

    @property
    def contradicted(self) -> list[Claim]:
        claims = self.result.claims if self.result is not None else ()
        return [claim for claim in claims if claim.verdict == "contradicted"]

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        found = dict(self.result.raw) if self.result is not None else {"verdict": self.name}
        return {**found, "blocked": self.blocked, "reason": self.reason}


@dataclass(kw_only=True)
class Guard:
    """Asks the gateway whether text is grounded in its documents.

    ``base_url`` and ``api_key`` are passed to ``Groundlane``. ``policy`` names a grounding policy on the gateway.
    ``options`` contains grounding rules to use instead. Both may block the text. If they would strip a part of it, all
    of it is blocked. In addition, ``block_on="contradicted"`` blocks text with any contradicted claim. ``"ungrounded"``
    also blocks text that is not grounded as a whole, because it has too many unverifiable claims or no documents. With
    ``"never"``, only ``policy`` and ``options`` can block text.

    ``on_error`` applies if no verdict is available. With ``closed``, GroundlaneError is raised if the gateway is
    unreachable, and the text is blocked if the gateway has no judge. With ``open``, the text is delivered and a warning
    is logged. If the gateway rejects the request, for example because of a wrong key or an unknown policy, an error is
    always raised.

    With ``in_process``, a judge process on this machine is used instead of a gateway, configured by the environment
    variables. This requires the package ``groundlane``. ``policy`` then names a policy in the file that
    ``GROUNDLANE_CONFIG`` points to.

    ``client`` and ``async_client`` replace the clients that are created from the arguments. Raises ValueError for an
    invalid argument or setting. With ``in_process``, raises ImportError if the package is missing, and
    JudgeProcessError if the judge process does not start.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    policy: str | None = None
    options: Mapping[str, Any] | None = None
    block_on: BlockOn = "contradicted"
    on_error: OnError = "closed"
    timeout: float = DEFAULT_TIMEOUT_S
    max_retries: int = DEFAULT_RETRIES
    in_process: bool = False
    client: Groundlane | LocalChecks | None = field(default=None, repr=False)
    async_client: AsyncGroundlane | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value, known in (("block_on", self.block_on, BlockOn), ("on_error", self.on_error, OnError)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}")
        if self.in_process:
            for name in ("base_url", "api_key", "client", "async_client"):
                if getattr(self, name) is not None:
                    raise ValueError(f"in_process doesn't use a gateway: pass either in_process or {name}, not both")
            self.client = LocalChecks(self.timeout)
        self.client = self.client or Groundlane(
            self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=self.max_retries
        )

    @property
    def decides_at_end(self) -> bool:
        """Whether any part of a text may be delivered only after the whole text is checked. This is the case if the end
        of a text may cause all of it to be blocked: with ``block_on="ungrounded"``, with a policy (whose rules are
        unknown here), or with ``options`` that say more than how a claim is judged."""
        rules = self.policy is not None or not _JUDGING.issuperset(self.options or ())
        return rules or self.block_on == "ungrounded"

    def check(self, text: str, documents: Sequence[Mapping[str, Any]], *, question: str | None = None) -> Verdict:
        """Judge ``text``. ``question`` is the user's message that it answers. If it is None, blank or longer than
        100,000 characters, it counts as unknown, and a "Yes." is unverifiable.

        Raises GroundlaneError if the request is rejected, or if no verdict is available and ``on_error`` is ``closed``.
        """
        if self.client is None:
            raise TypeError("client must not be None")
        try:
            result = self.client.check(text, **self._fields(documents, question))
        except GroundlaneError as error:
            return self._without(error)
        return self._ruled(result)

    async def acheck(
        self, text: str, documents: Sequence[Mapping[str, Any]], *, question: str | None = None
    ) -> Verdict:
        """Like ``check``, for asynchronous code. Uses ``async_client`` if it is given. Otherwise, runs ``check`` in a
        thread, so that the same guard can be used in several event loops in succession."""
        fields = self._fields(documents, question)
        try:
            if self.async_client is not None:
                result = await self.async_client.check(text, **fields)
            elif isinstance(self.client, LocalChecks):
                result = await self.client.acheck(text, **fields)
            else:
                return await anyio.to_thread.run_sync(lambda: self.check(text, documents, question=question))
        except GroundlaneError as error:
            return self._without(error)
        return self._ruled(result)

    def close(self) -> None:
        """Close ``client``. The owner of ``async_client`` must close it."""
        if self.client is not None:
            self.client.close()

    def _fields(self, documents: Sequence[Mapping[str, Any]], question: str | None) -> dict[str, Any]:
        """Return the arguments of the client's ``check``, except the text."""
        known = question if question is not None and len(question) <= _LONGEST_QUESTION else None
        return {"documents": documents, "question": known, "policy": self.policy, "options": self.options}

    def _without(self, error: GroundlaneError) -> Verdict:
        """Return the verdict to use when the gateway did not respond."""
        refused = isinstance(error, GatewayStatusError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        mine = refused and isinstance(error, GatewayStatusError) and error.status not in _NOT_CALLERS_FAULT
        if self.on_error == "closed" or mine:
            raise error
        _log.warning("delivered without a check (on_error=open): %s", error)
        return Verdict(blocked=False, reason=f"not checked: {error}", error=error)

    def _ruled(self, result: CheckResult) -> Verdict:
        """Return the verdict for a response. Its reason doesn't quote the text."""
        if (refusal := _refusal(result)) is not None:
            return Verdict(blocked=True, reason=refusal, result=result)
        if (result.verdict or "not_checked") == "not_checked":
            closed = self.on_error == "closed"
            if not closed:
                _log.warning("delivered without a check (on_error=open): no judge is available")
            return Verdict(blocked=closed, reason="no judge is available", result=result)
        if result.contradicted_count and self.block_on != "never":
            reason = f"{result.contradicted_count} of {result.total_claims} claims contradicted"
            repairable = self.block_on == "contradicted" or _only_contradicted(result)
            return Verdict(blocked=True, reason=reason, repairable=repairable, result=result)
        return Verdict(
            blocked=self.block_on == "ungrounded" and not result.grounded, reason=result.summary, result=result
        )


def _refusal(result: CheckResult) -> str | None:
    """Return why the policy or the rules would withhold the text or a part of it, or None if they wouldn't."""
    for decision in result.decisions:
        if decision.action not in _DELIVERING:
            return decision.reason_code or result.summary
    return result.summary if result.action is not None and result.action not in _DELIVERING else None


def _only_contradicted(result: CheckResult) -> bool:
    """Return whether everything in the text except the contradicted claims is supported."""
    return not (result.unverifiable_count or result.claims_skipped or result.unjudged)


def repaired(text: str, verdict: Verdict, replacement: str) -> str:
    """Mark the correction of each contradicted claim in ``text``, or remove the claim if it has no correction. Return
    ``replacement`` if no text is left, if the position of a claim is unknown, or if the contradicted claims aren't the
    only reason why the text is blocked."""
    if verdict.blocked and not verdict.repairable:
        return replacement
    kept, end = "", 0
    for claim in sorted(verdict.contradicted, key=lambda claim: claim.span.start if claim.span else -1):
        if claim.span is None:
            return replacement
        if claim.span.start < end:  # The claim is in a sentence that was already removed.
            continue
        kept += text[end : claim.span.start]
        end = claim.span.end
        if claim.correction:
            said = text[claim.span.start : end]
            kept += (claim.corrected or f"[CORRECTED: {claim.correction}]") + said[len(said.rstrip()) :]
        elif kept[-1:].isspace() or not kept:
            end += len(text[end:]) - len(text[end:].lstrip(" "))
    return (kept + text[end:]).strip() or replacement
