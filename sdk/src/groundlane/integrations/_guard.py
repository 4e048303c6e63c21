"""Shared by the integrations: the verdict on a text and its documents, independent of the library."""

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
"""Replaces a blocked text."""

_log = logging.getLogger("groundlane.integrations")
_NOT_CALLERS_FAULT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class UngroundedError(GroundlaneError):
    """A text was blocked. The message does not quote it; ``verdict`` has the details."""

    def __init__(self, verdict: "Verdict") -> None:
        super().__init__(f"The text is not grounded in its documents: {verdict.reason}.")
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``blocked``: the text must not be delivered; ``reason`` says why. ``result`` is the gateway's answer. It is None,
    and ``error`` is set, if there is no answer and the text may be delivered nevertheless."""

    blocked: bool
    reason: str
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
        """The verdict as JSON values."""
        found = dict(self.result.raw) if self.result is not None else {"verdict": self.name}
        return {**found, "blocked": self.blocked, "reason": self.reason}


@dataclass(kw_only=True)
class Guard:
    """Asks the gateway whether a text is grounded in its documents.

    ``base_url`` and ``api_key`` are those of ``Groundlane``. ``policy`` is the name of a grounding policy of the
    gateway; ``options`` are grounding rules to use instead. These may block a text, and so does ``block_on``: with
    ``contradicted``, any contradicted claim; with ``ungrounded``, also a text that is not grounded as a whole (too many
    unverifiable claims, or no documents); with ``never``, nothing else.

    ``on_error``: if there is no verdict because the gateway is unreachable or has no judge, ``closed`` raises
    GroundlaneError (no judge: blocks the text), and ``open`` delivers the text with a warning in the log. A refused
    request (a wrong key, an unknown policy) is always raised.

    ``in_process``: without a gateway, a judge process on this machine answers, with the settings of the environment.
    It needs the package ``groundlane``. ``policy`` is then a policy of the file in ``GROUNDLANE_CONFIG``.

    ``client`` and ``async_client`` replace the clients made from the arguments. Raises ValueError for a bad argument or
    setting, ImportError for ``in_process`` without the package, JudgeProcessError if the judge process does not start.
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
                    raise ValueError(f"in_process uses no gateway: give either in_process or {name}")
            self.client = LocalChecks(self.timeout)
        self.client = self.client or Groundlane(
            self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=self.max_retries
        )

    def check(self, text: str, documents: Sequence[Mapping[str, Any]], *, partial: bool = False) -> Verdict:
        """The verdict on ``text``. ``partial``: the text is incomplete, so only what more text cannot change blocks it.

        Raises GroundlaneError if there is no verdict and ``on_error`` is ``closed``, and if the request is refused.
        """
        if self.client is None:
            raise TypeError("client must not be None")
        try:
            result = self.client.check(text, documents=documents, policy=self.policy, options=self.options)
        except GroundlaneError as error:
            return self._without(error)
        return self._ruled(result, partial=partial)

    async def acheck(self, text: str, documents: Sequence[Mapping[str, Any]], *, partial: bool = False) -> Verdict:
        """``check`` for asynchronous code: with ``async_client``, or else in a thread, so that it works in several
        event loops, one after another."""
        known: dict[str, Any] = {"documents": documents, "policy": self.policy, "options": self.options}
        try:
            if self.async_client is not None:
                result = await self.async_client.check(text, **known)
            elif isinstance(self.client, LocalChecks):
                result = await self.client.acheck(text, **known)
            else:
                return await anyio.to_thread.run_sync(lambda: self.check(text, documents, partial=partial))
        except GroundlaneError as error:
            return self._without(error)
        return self._ruled(result, partial=partial)

    def close(self) -> None:
        """Close ``client``. The owner of ``async_client`` closes that."""
        if self.client is not None:
            self.client.close()

    def _without(self, error: GroundlaneError) -> Verdict:
        """The verdict if the gateway gave no answer."""
        refused = isinstance(error, GatewayStatusError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        mine = refused and isinstance(error, GatewayStatusError) and error.status not in _NOT_CALLERS_FAULT
        if self.on_error == "closed" or mine:
            raise error
        _log.warning("not checked, delivered anyway (on_error=open): %s", error)
        return Verdict(blocked=False, reason=f"not checked: {error}", error=error)

    def _ruled(self, result: CheckResult, *, partial: bool) -> Verdict:
        if result.verdict == "not_checked":
            closed = self.on_error == "closed"
            if not closed:
                _log.warning("not checked, delivered anyway (on_error=open): there is no judge")
            return Verdict(blocked=closed, reason="there is no judge", result=result)
        reason = self._reason(result, partial=partial)
        return Verdict(blocked=reason is not None, reason=reason or result.summary, result=result)

    def _reason(self, result: CheckResult, *, partial: bool) -> str | None:
        """Why the text is blocked, without quoting it; None if it is not blocked."""
        for decision in result.decisions:
            if decision.blocks and not (partial and decision.phase == "after_workflow"):
                return decision.reason_code or result.summary
        if result.contradicted_count and self.block_on != "never":
            return f"{result.contradicted_count} of {result.total_claims} claims contradicted"
        if self.block_on == "ungrounded" and not result.grounded and not partial:
            return result.summary
        return None


def repaired(text: str, verdict: Verdict, replacement: str) -> str:
    """``text`` with each contradicted claim replaced by its correction, or removed if it has none. ``replacement`` if
    nothing is left, or if the place of a claim is unknown."""
    kept, end = "", 0
    for claim in sorted(verdict.contradicted, key=lambda claim: claim.span.start if claim.span else -1):
        if claim.span is None:
            return replacement
        if claim.span.start < end:  # in a sentence that is already removed
            continue
        kept += text[end : claim.span.start]
        end = claim.span.end
        if claim.correction:
            said = text[claim.span.start : end]
            kept += claim.correction + said[len(said.rstrip()) :]
        elif kept[-1:].isspace() or not kept:
            end += len(text[end:]) - len(text[end:].lstrip(" "))
    return (kept + text[end:]).strip() or replacement
