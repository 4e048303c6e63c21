"""Replays logged requests under different policies, for shadow policies and for simulations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from judges.report import SKIPPED
from judges.types import Chunk, Claim, ClaimVerdict, Consistency, Label, Source
from policies.base import JudgeOptions
from policies.evaluation import strictest
from policies.policy_selection import PolicySet, priority_order
from policies.reply_evaluation import trust_of
from policies.types import INVISIBLE, Action, Citation, Decision, Phase, PolicyInputs, UnjudgedText

NO_REPLY = "no_reply"
"""The request was blocked before it had a reply."""
CUT_OFF = "reply_cut_off"
"""The reply was blocked at a sentence that passes now; its continuation is unknown."""
DOCUMENTS = "documents_differ"
"""The judge would see different documents."""
NOT_JUDGED = "not_judged"
"""The reply was not judged, but now it would be."""
THRESHOLDS = "judged_by_other_thresholds"
"""With the new thresholds, the judge would check a claim against different evidence."""
MORE_CLAIMS = "more_claims"
"""Claims that were skipped would be judged."""
SOURCES = "sources_per_claim"
"""Each claim would be judged against more or fewer passages."""
LLM = "llm_score"
"""An LLM score would be requested that was not requested before."""
CONSISTENCY = "consistency"
"""The claims would be compared with each other."""
ANSWER = "answer"
"""The reply would be compared with the question."""
CONFLICTS = "conflicts"
"""The documents would be compared with each other."""
INSTRUCTIONS = "injected_instructions"
"""The documents would be searched for instructions, but the log doesn't contain their texts."""
STANDINGS = "standings"
"""It is unknown which text of the reply was unjudged, how much text would be unjudged, or which citations would be left
out with it."""
CORRECTIONS = "corrections"
"""A contradicted claim would need a correction, but the log has none that was judged."""
TOOLS = "evidence_from_tools"
"""Tool messages would now count as documents, or would no longer do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLog:
    """The data logged about one choice in a reply.

    ``inputs`` includes the claims and citations in sentences that were left out. ``positions`` maps each of the
    choice's documents to its position in the request. ``ready`` means that a judge was available when the choice began.
    ``complete`` means that the choice reached its end. ``skipped`` is the number of claims beyond ``max_claims``.
    ``delivered`` holds the indices of the sentences sent to the client.
    """

    inputs: PolicyInputs
    positions: tuple[int, ...] = ()
    ready: bool = True
    complete: bool = True
    skipped: int = 0
    delivered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The data logged about a request.

    ``late`` is the number of documents that arrived with the reply; they are at the end of ``chunks``. ``dropped``
    holds the positions of documents that policies dropped. ``judging`` is None if the reply wasn't supposed to be
    judged. ``blocked`` means that a policy blocked the request. ``tools`` says whether policies counted tool messages
    as documents; it is None if the request itself decided this. ``conflicts`` is the result of comparing the documents,
    or None if they were not compared.
    """

    chunks: Sequence[Chunk] = ()
    late: int = 0
    dropped: frozenset[int] = frozenset()
    injectable: bool = False
    stream: bool = False
    blocked: bool = False
    tools: bool | None = None
    conflicts: Consistency | None = None
    judging: JudgeOptions | None = None
    choices: Sequence[ChoiceLog] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The policies' decisions on a logged request. ``action`` is the overall action: ``allow``, ``warn`` or ``block``.

    ``doubts`` lists the reasons why a live request could have a different outcome.
    """

    action: Action
    decisions: tuple[Decision, ...]
    dropped: frozenset[int] = frozenset()
    doubts: frozenset[str] = frozenset()


def replay(policies: PolicySet, log: RequestLog) -> ReplayResult:
    """Compute the decisions that ``policies`` would have made about a request if they had been in force."""
    given = log.chunks[: len(log.chunks) - log.late]
    inputs = PolicyInputs(chunks=given, injectable=log.injectable)
    combined = policies.evaluate_documents(inputs)
    dropped = frozenset(combined.dropped)
    if combined.action is Action.BLOCK:
        return ReplayResult(action=Action.BLOCK, decisions=combined.decisions, dropped=dropped)
    doubts: set[str] = set()
    if policies.document_needs.reads_texts and not all(chunk.text for chunk in given):
        doubts.add(INSTRUCTIONS)
    if policies.document_needs.compares and len(given) - len(dropped) > 1:
        if log.conflicts is None or dropped != log.dropped:
            doubts.add(CONFLICTS)
        combined = policies.evaluate_documents(replace(inputs, conflicts=log.conflicts))
    decisions = list(combined.decisions)
    judged = policies.governs_reply
    blocked = False
    if judged and log.blocked and not log.choices:
        doubts.add(NO_REPLY)
    elif judged and log.judging is None:
        doubts.add(NOT_JUDGED)
    for index, choice in enumerate(log.choices if judged else ()):
        replayed = _ChoiceReplay(policies, log, choice, dropped)
        blocked = replayed.run() or blocked
        doubts |= replayed.doubts
        # The rules are bound once per request, not once per choice.
        decisions += (d for d in replayed.evaluation.decisions if index == 0 or d.phase is not Phase.BEFORE_WORKFLOW)
    action = Action.BLOCK if blocked else strictest([decision.action for decision in decisions])
    return ReplayResult(
        action=Action.WARN if action is Action.DROP else action,
        decisions=tuple(decisions),
        dropped=dropped,
        doubts=frozenset(doubts),
    )


def shadow_decisions(policies: PolicySet, log: RequestLog) -> tuple[Decision, ...]:
    """Compute the decisions that each shadow policy would have made if it had been in force together with the enforced
    ones."""
    made: list[Decision] = []
    for policy in policies.shadow:
        together = sorted((*policies.policies, policy), key=priority_order)
        made += (
            decision
            for decision in replay(PolicySet(tuple(together)), log).decisions
            if (decision.policy_id, decision.policy_version) == (policy.id, policy.version)
        )
    return tuple(made)


class _ChoiceReplay:
    """The replay of one choice under ``policies``. It takes the same steps as the gateway, but without the
    upstream."""

    def __init__(self, policies: PolicySet, log: RequestLog, choice: ChoiceLog, dropped: frozenset[int]) -> None:
        self._policies, self._log, self._choice = policies, log, choice
        self.doubts: set[str] = set()
        self._settings = policies.reply_settings
        if log.tools is not None and log.tools is not self._settings.evidence_from_tools:
            self.doubts.add(TOOLS)
        self._judging = self._settings.judging
        found = self._on_kept(dropped)
        live = log.stream and self._settings.stream_mode == "live"
        claims = self._claims(found)
        unjudged = self._unjudged(found, found.claims[len(claims) :])
        strippable = not live and not found.indivisible
        if strippable and self._settings.withholds_unjudged:
            # The gateway removes invisible characters without a decision.
            unjudged = [text for text in unjudged if text.kind != INVISIBLE]
        self._inputs = replace(found, claims=claims, unjudged=unjudged, strippable=strippable)
        repairs = [needs.repairs for needs in self._settings.needs if needs.repairs is not None]
        if strippable and any(each.needs_correction(c) and not c.corrected for each in repairs for c in claims):
            self.doubts.add(CORRECTIONS)
        self.evaluation = policies.evaluate_reply(_opening(self._inputs, ready=choice.ready, late=log.late > 0))

    def run(self) -> bool:
        """Make the decisions, and return True if the choice is blocked."""
        if self.evaluation.start_before_call().action is Action.BLOCK:
            return True
        if self._log.blocked and not (self._inputs.claims or self._inputs.unjudged or self._inputs.coverage):
            self.doubts.add(NO_REPLY)
        withheld: set[int] = set()
        shortened: set[int] = set()
        for index, claims, unjudged in self._sentences():
            decision = self.evaluation.sentence(claims, unjudged)
            if decision.action is Action.BLOCK:
                self.evaluation.abort()
                return True
            if decision.strip:
                withheld.add(index)
            elif decision.left_out:
                shortened.add(index)
                self._doubt_stray_citations(index)
        if not self._choice.complete:
            if self._log.blocked:
                self.doubts.add(CUT_OFF)
            self.evaluation.abort()
            return False
        shown, left_out = self._citations(withheld, shortened)
        trust = trust_of([c for c in self._inputs.claims if c.claim.sentence_index not in withheld])
        inputs = replace(self._inputs, citations=shown, trust_score=trust if self._inputs.judged else None)
        if inputs.judged:
            self._doubt_missing(inputs)
        return self.evaluation.finish(inputs, left_out=left_out).action is Action.BLOCK

    def _citations(self, withheld: set[int], shortened: set[int]) -> tuple[list[Citation], list[Citation]]:
        """Return the citations that are delivered and those that are left out. Markers without a document are left out
        with the unjudged text of ``shortened`` sentences."""
        shown: list[Citation] = []
        left_out: list[Citation] = []
        for citation in self._inputs.citations:
            sentence = citation.sentence_index
            stray = citation.document_index is None and sentence in shortened
            (left_out if sentence in withheld or stray else shown).append(citation)
        return shown, left_out

    def _sentences(self) -> Iterator[tuple[int, list[ClaimVerdict], list[UnjudgedText]]]:
        """Yield the index, claims and unjudged text of each sentence that has claims or unjudged text, in order."""
        claims: dict[int, list[ClaimVerdict]] = {}
        unjudged: dict[int, list[UnjudgedText]] = {}
        for claim in self._inputs.claims:
            claims.setdefault(claim.claim.sentence_index, []).append(claim)
        for text in self._inputs.unjudged:
            unjudged.setdefault(text.sentence_index, []).append(text)
        for index in sorted(claims.keys() | unjudged.keys()):
            yield index, claims.get(index, []), unjudged.get(index, [])

    def _doubt_stray_citations(self, sentence: int) -> None:
        """Add a doubt if the sentence may contain a citation without a document. Such a citation doesn't count if it is
        left out with the sentence's unjudged text."""
        if any(
            citation.document_index is None and not citation.reported and citation.sentence_index in (None, sentence)
            for citation in self._inputs.citations
        ):
            self.doubts.add(STANDINGS)

    def _doubt_missing(self, inputs: PolicyInputs) -> None:
        """Add a doubt for each check that the policies require but whose result is not in the log."""
        if set(self._settings.score_requests).difference(score.request for score in inputs.llm_scores):
            self.doubts.add(LLM)
        if self._settings.consistency_check and inputs.consistency is None and len(inputs.claims) > 1:
            self.doubts.add(CONSISTENCY)
        lacks_relevance = self._settings.answer_relevance and inputs.answer_relevance is None and inputs.claims
        if lacks_relevance or (self._settings.question_parts and inputs.question_parts is None):
            self.doubts.add(ANSWER)

    def _on_kept(self, dropped: frozenset[int]) -> PolicyInputs:
        """Return the inputs without the ``dropped`` documents. If the remaining documents differ from those that the
        reply was judged against, the verdicts are approximate."""
        choice, inputs = self._choice, self._choice.inputs
        seen = max(choice.positions, default=-1)
        kept = [position for position in range(len(self._log.chunks)) if position not in dropped]
        if dropped == self._log.dropped:
            kept = list(choice.positions)
        elif self._log.judging is not None:
            self.doubts.add(DOCUMENTS)
            kept = [position for position in kept if position <= seen or position in self._log.dropped]
        chunks = [self._log.chunks[position] for position in kept]
        if tuple(kept) == choice.positions:
            return replace(inputs, chunks=chunks)
        places = {old: kept.index(p) for old, p in enumerate(choice.positions) if p in kept}
        claims = [_moved(claim, places) for claim in inputs.claims]
        citations = [citation.moved(places) for citation in inputs.citations]
        support = {(span, places[i]): score for (span, i), score in inputs.cited_support.items() if i in places}
        return replace(inputs, chunks=chunks, claims=claims, citations=citations, cited_support=support)

    def _claims(self, inputs: PolicyInputs) -> Sequence[ClaimVerdict]:
        """Return the claims as they would be judged, as far as the logged verdicts allow."""
        before, now = self._log.judging, self._judging
        if before is None:
            return inputs.claims
        claims = inputs.claims
        if now.max_claims is None or (before.max_claims is not None and now.max_claims >= before.max_claims):
            if self._choice.skipped and now.max_claims != before.max_claims:
                self.doubts.add(MORE_CLAIMS)
        else:
            claims = claims[: now.max_claims]
        if now.max_sources != before.max_sources and claims:
            self.doubts.add(SOURCES)
        if now.thresholds == before.thresholds:
            return claims
        if len(inputs.chunks) > 1 and any(_judged_differently(claim, before, now) for claim in claims):
            self.doubts.add(THRESHOLDS)
        return [replace(claim, label=now.thresholds.label_of(claim)) for claim in claims]

    def _unjudged(self, inputs: PolicyInputs, beyond: Sequence[ClaimVerdict]) -> Sequence[UnjudgedText]:
        """Return the unjudged text, including the text of claims ``beyond`` the number that would be judged now."""
        if inputs.coverage is None:
            # The log doesn't show whether a reply without claims states anything. If it states nothing, it needs no
            # citation.
            matters = self._settings.reads_standings if inputs.claims else self._settings.wants_citations
            if matters and self._log.judging is not None:
                self.doubts.add(STANDINGS)
            return inputs.unjudged
        if not beyond:
            return inputs.unjudged
        self.doubts.add(STANDINGS)
        texts = [*inputs.unjudged, *(_skipped(claim.claim) for claim in beyond)]
        return sorted(texts, key=lambda text: text.span.start)


def _opening(inputs: PolicyInputs, *, ready: bool, late: bool) -> PolicyInputs:
    """Return the inputs as they were when the reply (the API's ``choice``) began. ``late`` says whether documents
    arrived with the reply."""
    return PolicyInputs(
        chunks=inputs.chunks,
        injectable=inputs.injectable,
        strippable=inputs.strippable,
        indivisible=inputs.indivisible,
        judge_unavailable=inputs.judge_unavailable,
        reported_scores=inputs.reported_scores,
        reported_unsupported=inputs.reported_unsupported,
        output_confidence=inputs.output_confidence,
        citations=[citation for citation in inputs.citations if citation.reported],
        judged=ready,
        documents_may_follow=late,
    )


def _skipped(claim: Claim) -> UnjudgedText:
    return UnjudgedText(kind=SKIPPED, span=claim.span, sentence_index=claim.sentence_index, text=claim.text)


def _judged_differently(claim: ClaimVerdict, before: JudgeOptions, now: JudgeOptions) -> bool:
    """Return whether the thresholds change how the claim is judged. A claim that no single passage supports is judged
    again, against two joined passages."""
    if claim.reason is not None or claim.label is Label.NOT_A_CLAIM:
        return False
    joined = list(claim.support.values()).count(claim.entailed) > 1
    unsure = {judging.thresholds.label_of(claim) is Label.UNVERIFIABLE for judging in (before, now)}
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
