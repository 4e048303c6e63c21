"""The decisions of a request made again from what it left behind: for policies in shadow, and for what-if questions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from judges.types import Chunk, ClaimVerdict, Consistency, Label, Source, Thresholds
from policies.engine import PolicySet
from policies.grounding.reply_evaluation import Audit
from policies.types import Action, Decision, Phase, Record, strictest

NO_REPLY = "no_reply"
"""The request was blocked before a reply, so none is known."""
CUT_OFF = "reply_cut_off"
"""The reply was blocked at a sentence that passes now; what would have followed is not known."""
DOCUMENTS = "documents_differ"
"""The judge would see other documents than it saw."""
NOT_JUDGED = "not_judged"
"""Nobody judged the reply, and now somebody would."""
THRESHOLDS = "judged_by_other_thresholds"
"""Under the new thresholds the judge would have looked further at a claim, or less far."""
MORE_CLAIMS = "more_claims"
"""Claims that were skipped would be judged."""
SOURCES = "sources_per_claim"
"""Each claim would be judged against more passages, or fewer."""
LLM = "llm_score"
"""An LLM would be asked for a score that it was not asked for."""
CONSISTENCY = "consistency"
"""The claims would be held against each other."""
CONFLICTS = "conflicts"
"""The documents would be held against each other."""
TOOLS = "evidence_from_tools"
"""What tools said would count among the documents, or no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How the judge was asked: what the policies of the time wanted."""

    thresholds: Thresholds
    max_sources: int
    max_claims: int | None

    @classmethod
    def of(cls, audit: Audit) -> "Judging":
        return cls(thresholds=audit.thresholds, max_sources=audit.max_sources_per_claim, max_claims=audit.max_claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLog:
    """What one choice of a reply came to.

    ``record`` is all that was found, also the claims and citations of sentences that were left out. ``positions``:
    where in the request each of its documents stood. ``ready``: when it began, a judge was to look at it. ``complete``:
    it came to its end. ``skipped``: how many claims were more than the judge was to look at. ``delivered``: the
    sentences that reached the client, by index.
    """

    record: Record
    positions: tuple[int, ...] = ()
    ready: bool = True
    complete: bool = True
    skipped: int = 0
    delivered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """What one request left behind.

    ``late``: how many of the last ``chunks`` came with the reply. ``dropped``: the positions of those that policies
    took out. ``judging`` is None where nobody was to judge. ``blocked``: a policy ended it. ``tools``: whether policies
    counted what tools said among the documents; None where that was not theirs to say. ``conflicts``: what came of
    holding the documents against each other; None where nobody did.
    """

    chunks: Sequence[Chunk] = ()
    late: int = 0
    dropped: frozenset[int] = frozenset()
    injectable: bool = False
    stream: bool = False
    blocked: bool = False
    tools: bool | None = None
    conflicts: Consistency | None = None
    judging: Judging | None = None
    choices: Sequence[ChoiceLog] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What policies decide of a request. ``action`` is that of the whole: ``allow``, ``warn`` or ``block``.

    ``doubts``: why a request like it may turn out otherwise; empty where it cannot.
    """

    action: Action
    decisions: tuple[Decision, ...]
    dropped: frozenset[int] = frozenset()
    doubts: frozenset[str] = frozenset()


def replay(policies: PolicySet, log: RequestLog) -> Replay:
    """Let ``policies`` decide of a request as they would have, had they been in force."""
    given = log.chunks[: len(log.chunks) - log.late]
    record = Record(chunks=given, injectable=log.injectable)
    ruling = policies.retrieval(record)
    dropped = frozenset(ruling.dropped)
    if ruling.action is Action.BLOCK:
        return Replay(action=Action.BLOCK, decisions=ruling.decisions, dropped=dropped)
    doubts: set[str] = set()
    if policies.checks_conflicts and len(given) - len(dropped) > 1:
        if log.conflicts is None or dropped != log.dropped:
            doubts.add(CONFLICTS)
        ruling = policies.retrieval(replace(record, conflicts=log.conflicts))
    decisions = list(ruling.decisions)
    judged = bool(policies.of("grounding"))
    blocked = False
    if judged and log.blocked and not log.choices:
        doubts.add(NO_REPLY)
    for index, choice in enumerate(log.choices if judged else ()):
        replayed = _ChoiceReplay(policies, log, choice, dropped)
        blocked = replayed.run() or blocked
        doubts |= replayed.doubts
        # The rules are bound once a request, not once a choice.
        decisions += (d for d in replayed.audit.decisions if index == 0 or d.phase is not Phase.BEFORE_WORKFLOW)
    action = Action.BLOCK if blocked else strictest([decision.action for decision in decisions])
    return Replay(
        action=Action.WARN if action is Action.DROP else action,
        decisions=tuple(decisions),
        dropped=dropped,
        doubts=frozenset(doubts),
    )


def shadow_decisions(policies: PolicySet, log: RequestLog) -> tuple[Decision, ...]:
    """What each policy in shadow would have decided, had it been in force beside those that are."""
    made: list[Decision] = []
    for policy in policies.shadow:
        together = sorted((*policies.policies, policy), key=lambda one: (-one.priority, one.name, one.id))
        beside = PolicySet(tuple(together))
        made += (decision for decision in replay(beside, log).decisions if decision.policy_id == policy.id)
    return tuple(made)


class _ChoiceReplay:
    """One choice under ``policies``: the steps that the gateway takes, without the reply."""

    def __init__(self, policies: PolicySet, log: RequestLog, choice: ChoiceLog, dropped: frozenset[int]) -> None:
        self._policies, self._log, self._choice = policies, log, choice
        self.doubts: set[str] = set()
        bare = policies.audit(Record())
        if log.tools is not None and log.tools is not bare.evidence_from_tools:
            self.doubts.add(TOOLS)
        self._judging = Judging.of(bare)
        found = self._on_kept(dropped)
        live = log.stream and bare.stream_mode == "live"
        self._record = replace(found, claims=self._claims(found), strippable=not live)
        self.audit = policies.audit(_opening(self._record, ready=choice.ready))

    def run(self) -> bool:
        """Decide; True where the choice is blocked."""
        if self.audit.start().action is Action.BLOCK:
            return True
        withheld: set[int] = set()
        for index, group in groupby(self._record.claims, lambda claim: claim.claim.sentence_index):
            action = self.audit.sentence(list(group)).action
            if action is Action.BLOCK:
                self.audit.abort()
                return True
            if action is Action.DROP:
                withheld.add(index)
        if not self._choice.complete:
            if self._log.blocked:
                self.doubts.add(CUT_OFF)
            self.audit.abort()
            return False
        shown = [citation for citation in self._record.citations if citation.sentence_index not in withheld]
        trust = _trust([c for c in self._record.claims if c.claim.sentence_index not in withheld])
        record = replace(self._record, citations=shown, trust_score=trust if self._record.judged else None)
        if record.judged and set(self.audit.score_requests).difference(score.request for score in record.llm_scores):
            self.doubts.add(LLM)
        if self.audit.consistency_check and record.consistency is None and record.judged and len(record.claims) > 1:
            self.doubts.add(CONSISTENCY)
        return self.audit.finish(record).action is Action.BLOCK

    def _on_kept(self, dropped: frozenset[int]) -> Record:
        """The record with the documents that ``dropped`` leaves. Where others are left than the judge saw, what it said
        of the rest is the best guess."""
        choice, record = self._choice, self._choice.record
        seen = max(choice.positions, default=-1)
        kept = [position for position in range(len(self._log.chunks)) if position not in dropped]
        if dropped == self._log.dropped:
            kept = list(choice.positions)
        elif self._log.judging is not None:
            self.doubts.add(DOCUMENTS)
            kept = [position for position in kept if position <= seen or position in self._log.dropped]
        chunks = [self._log.chunks[position] for position in kept]
        if tuple(kept) == choice.positions:
            return replace(record, chunks=chunks)
        places = {old: kept.index(p) for old, p in enumerate(choice.positions) if p in kept}
        claims = [_moved(claim, places) for claim in record.claims]
        citations = [
            replace(citation, document_index=places.get(citation.document_index))
            if citation.document_index is not None
            else citation
            for citation in record.citations
        ]
        support = {(span, places[i]): score for (span, i), score in record.cited_support.items() if i in places}
        return replace(record, chunks=chunks, claims=claims, citations=citations, cited_support=support)

    def _claims(self, record: Record) -> Sequence[ClaimVerdict]:
        """The claims as the judge would put them, as far as can be told from how it put them."""
        before, now = self._log.judging, self._judging
        if before is None:
            if record.chunks and not record.judge_unavailable:
                self.doubts.add(NOT_JUDGED)
            return record.claims
        claims = record.claims
        if now.max_claims is None or (before.max_claims is not None and now.max_claims >= before.max_claims):
            if self._choice.skipped and now.max_claims != before.max_claims:
                self.doubts.add(MORE_CLAIMS)
        else:
            claims = claims[: now.max_claims]
        if now.max_sources != before.max_sources and claims:
            self.doubts.add(SOURCES)
        if now.thresholds == before.thresholds:
            return claims
        if len(record.chunks) > 1 and any(_other_course(claim, before, now) for claim in claims):
            self.doubts.add(THRESHOLDS)
        return [replace(claim, label=claim.at(now.thresholds)) for claim in claims]


def _opening(record: Record, *, ready: bool) -> Record:
    """What was known when the choice began."""
    return Record(
        chunks=record.chunks,
        injectable=record.injectable,
        strippable=record.strippable,
        judge_unavailable=record.judge_unavailable,
        reported_scores=record.reported_scores,
        reported_unsupported=record.reported_unsupported,
        output_confidence=record.output_confidence,
        judged=ready,
    )


def _trust(claims: Iterable[ClaimVerdict]) -> float | None:
    labels = [claim.label for claim in claims]
    return labels.count(Label.SUPPORTED) / len(labels) if labels else None


def _other_course(claim: ClaimVerdict, before: Judging, now: Judging) -> bool:
    """A claim that no single passage supports is judged once more against two together. Whether that was done, or would
    be, hangs on the thresholds."""
    if claim.reason is not None or claim.label is Label.NOT_A_CLAIM:
        return False
    joined = list(claim.support.values()).count(claim.entailed) > 1
    unsure = {claim.at(judging.thresholds) is Label.UNVERIFIABLE for judging in (before, now)}
    return joined or len(unsure) > 1


def _moved(claim: ClaimVerdict, places: dict[int, int]) -> ClaimVerdict:
    return replace(
        claim,
        best_source=_moved_source(claim.best_source, places),
        contradicting_source=_moved_source(claim.contradicting_source, places),
        support={places[document]: score for document, score in claim.support.items() if document in places},
    )


def _moved_source(source: Source | None, places: dict[int, int]) -> Source | None:
    if source is None or source.document_index not in places:
        return None
    return replace(source, document_index=places[source.document_index])
