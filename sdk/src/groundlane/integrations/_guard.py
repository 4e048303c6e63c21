"""What the integrations have in common: a text and its documents become a verdict, whatever the library."""

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
"""What stands in place of a text that is blocked."""

_log = logging.getLogger("groundlane.integrations")
_NEVER_MINE = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class UngroundedError(GroundlaneError):
    """A text was blocked. The message has no word of it; ``verdict`` has all that was found."""

    def __init__(self, verdict: "Verdict") -> None:
        super().__init__(f"The text is not grounded in its documents: {verdict.reason}.")
        self.verdict = verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``blocked``: the text is not to go out, ``reason`` says why. ``result`` is the gateway's answer; None, with the
    ``error``, where it gave none and the text may go out all the same."""

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
        """What was found, as JSON values."""
        found = dict(self.result.raw) if self.result is not None else {"verdict": self.name}
        return {**found, "blocked": self.blocked, "reason": self.reason}


@dataclass(kw_only=True)
class Guard:
    """Asks the gateway whether a text keeps to its documents.

    ``base_url`` and ``api_key`` are those of ``Groundlane``, or of the environment. ``policy`` names a grounding policy
    of the gateway's; ``options`` are grounding rules given instead. A text is blocked where these say so, and by
    ``block_on``: for any claim that is ``contradicted``, also for being ``ungrounded`` as a whole (too much of it is
    found nowhere, or there is no document), or for nothing else (``never``).

    ``on_error``: where the gateway gives no verdict, because it is away or has no judge, ``closed`` raises
    GroundlaneError (no judge: blocks), and ``open`` lets the text pass with a warning in the log. A request that the
    gateway refuses (a wrong key, an unknown policy) is raised either way: it is a mistake to mend.

    ``in_process``: there is no gateway; the judge of the package ``groundlane``, installed beside this one, is asked in
    this process, by the settings of its environment and with the deadlines that they set. ``policy`` is then one of the
    file of ``GROUNDLANE_CONFIG``.

    ``client`` and ``async_client`` stand in for those made of the arguments. Raises ValueError for a bad argument, and
    ImportError for ``in_process`` without that package.
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
                    raise ValueError(f"{name} is of a gateway, and in_process asks none: give one of the two")
            self.client = LocalChecks(self.timeout)
        self.client = self.client or Groundlane(
            self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=self.max_retries
        )

    def check(self, text: str, documents: Sequence[Mapping[str, Any]], *, partial: bool = False) -> Verdict:
        """The verdict on ``text``. ``partial``: more of it is to come, so only what cannot be mended by it blocks.

        Raises GroundlaneError where ``on_error`` is ``closed``, and for a request that the gateway refuses.
        """
        if self.client is None:
            raise TypeError("client must not be None")
        try:
            result = self.client.check(text, documents=documents, policy=self.policy, options=self.options)
        except GroundlaneError as error:
            return self._without(error)
        return self._ruled(result, partial=partial)

    async def acheck(self, text: str, documents: Sequence[Mapping[str, Any]], *, partial: bool = False) -> Verdict:
        """``check`` for asynchronous code: by ``async_client``, or else in a thread, so that it may be used in one
        event loop after another."""
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
        """Close the connections of ``client``; those of ``async_client`` are its owner's."""
        if self.client is not None:
            self.client.close()

    def _without(self, error: GroundlaneError) -> Verdict:
        """What holds where the gateway gave no answer."""
        refused = isinstance(error, GatewayStatusError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        mine = refused and isinstance(error, GatewayStatusError) and error.status not in _NEVER_MINE
        if self.on_error == "closed" or mine:
            raise error
        _log.warning("not checked, let through (on_error=open): %s", error)
        return Verdict(blocked=False, reason=f"not checked: {error}", error=error)

    def _ruled(self, result: CheckResult, *, partial: bool) -> Verdict:
        if result.verdict == "not_checked":
            closed = self.on_error == "closed"
            if not closed:
                _log.warning("not checked, let through (on_error=open): there is no judge")
            return Verdict(blocked=closed, reason="there is no judge", result=result)
        reason = self._reason(result, partial=partial)
        return Verdict(blocked=reason is not None, reason=reason or result.summary, result=result)

    def _reason(self, result: CheckResult, *, partial: bool) -> str | None:
        """Why the text is blocked, without a word of it; None: it is not."""
        for decision in result.decisions:
            if decision.blocks and not (partial and decision.phase == "after_workflow"):
                return decision.reason_code or result.summary
        if result.contradicted_count and self.block_on != "never":
            return f"{result.contradicted_count} of {result.total_claims} claims contradicted"
        if self.block_on == "ungrounded" and not result.grounded and not partial:
            return result.summary
        return None


def repaired(text: str, verdict: Verdict, replacement: str) -> str:
    """``text`` with the correction in place of each contradicted claim, where a judge gave one, and without the claim
    where none did; ``replacement`` where nothing is left, or where a claim does not say where it stands."""
    kept, end = "", 0
    for claim in sorted(verdict.contradicted, key=lambda claim: claim.span.start if claim.span else -1):
        if claim.span is None:
            return replacement
        if claim.span.start < end:  # of a sentence that is left out already
            continue
        kept += text[end : claim.span.start]
        end = claim.span.end
        if claim.correction:
            said = text[claim.span.start : end]
            kept += claim.correction + said[len(said.rstrip()) :]
        elif kept[-1:].isspace() or not kept:
            end += len(text[end:]) - len(text[end:].lstrip(" "))
    return (kept + text[end:]).strip() or replacement
