"""A sentence of a reply with its verdict and where it ended up, and what can be said of several."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.events.claim_rows import SentenceRecord
from judges.report import SKIPPED, letters
from judges.types import ClaimVerdict, Consistency, Label, LlmCall, LlmScore, SentenceVerdict, Source, Span
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.grounding.unjudged_check import unjudged_texts
from policies.replay import ChoiceLog
from policies.types import Citation, PolicyInputs

Findings = Mapping[str, Any]
"""What the final checks found about the whole reply: fields of ``policies.types.PolicyInputs``."""


@dataclass(slots=True, kw_only=True)
class JudgedSentence:
    """A sentence that was judged. ``offset``: where it begins in the delivered text; None if it was not delivered.

    ``citations`` are those in its text, ``noted`` those that the upstream reports in objects of its own.
    ``corrected``: where in the delivered text a correction replaces it. ``retracted``: a further upstream call replaced
    it. ``structure``: it is markup between the strings of a JSON reply. ``left_out``: the parts of the upstream's reply
    that were left out of the sentence, in order. ``times``: when it was complete and when it was judged, in
    milliseconds since the request came; None if unknown.
    """

    verdict: SentenceVerdict
    offset: int | None
    citations: Sequence[Citation] = ()
    noted: Sequence[Citation] = ()
    corrected: Span | None = None
    retracted: bool = False
    structure: bool = False
    left_out: tuple[Span, ...] = ()
    times: tuple[float, float] | None = None

    @property
    def shown(self) -> bool:
        """The client got the sentence or its correction."""
        return self.offset is not None or self.corrected is not None

    @property
    def supporting(self) -> list[Source]:
        """The passages that support what the client got."""
        claims = self.verdict.claims
        if self.corrected is not None:
            return [c.contradicting_source for c in claims if c.correction and c.contradicting_source is not None]
        return [c.best_source for c in claims if c.label is Label.SUPPORTED and c.best_source is not None]

    @property
    def span(self) -> Span | None:
        """The sentence or its correction in the delivered text, without surrounding white space."""
        if self.offset is None:
            return self.corrected
        sentence = self.verdict.sentence
        text, begin = sentence.text, sentence.span.start
        start = self.place(begin + len(text) - len(text.lstrip()))
        return Span(start, max(start, self.place(begin + len(text.rstrip()))))

    @property
    def delivered_verdict(self) -> SentenceVerdict:
        """The verdict of what was delivered: without the parts that were left out."""
        if not self.left_out:
            return self.verdict
        gone = frozenset(self.left_out)
        return replace(self.verdict, parts=tuple(part for part in self.verdict.parts if part.span not in gone))

    @property
    def letters(self) -> int:
        """The letters and digits of the sentence, without those that were left out."""
        sentence = self.verdict.sentence
        start = sentence.span.start
        gone = sum(letters(sentence.text[span.start - start : span.end - start]) for span in self.left_out)
        return letters(sentence.text) - gone

    def place(self, position: int) -> int:
        """Where a position in the upstream's reply is in the delivered text. Only for a sentence that was delivered."""
        before = sum(min(span.end, position) - span.start for span in self.left_out if span.start < position)
        return (self.offset or 0) + position - self.verdict.sentence.span.start - before


def policy_claims(verdicts: Iterable[SentenceVerdict]) -> list[ClaimVerdict]:
    """The claims that policies look at: not those beyond ``max_claims``, which are reported as skipped."""
    return [claim for verdict in verdicts for claim in verdict.claims if claim.reason != SKIPPED]


def standing(sentences: Sequence[JudgedSentence]) -> list[JudgedSentence]:
    """The sentences that no further upstream call replaced."""
    return [sentence for sentence in sentences if not sentence.retracted]


def sentence_records(sentences: Sequence[JudgedSentence]) -> list[SentenceRecord]:
    """The sentences as the event log keeps them."""
    return [
        SentenceRecord(
            verdict=sentence.verdict,
            delivered=sentence.offset is not None,
            retracted=sentence.retracted,
            times=sentence.times,
        )
        for sentence in sentences
        if not sentence.structure
    ]


def choice_log(
    inputs: PolicyInputs,
    sentences: Sequence[JudgedSentence],
    *,
    cited: Sequence[Citation],
    reported: Sequence[Citation],
    names: DocumentNames,
    positions: Sequence[int],
    ready: bool,
    complete: bool,
) -> ChoiceLog:
    """``inputs`` with the sentences that were left out too, since other policies might have delivered them.

    ``cited`` are the citations that the upstream reports, ``reported`` those that the caller reports; citations in the
    text are in ``sentences`` or, where a sentence was left out, in its text.
    """
    claims = policy_claims(sentence.verdict for sentence in sentences)
    unjudged = [text for sentence in sentences for text in unjudged_texts(sentence.verdict)]
    in_text = (citation for sentence in sentences for citation in _citations_in(sentence, names))
    return ChoiceLog(
        inputs=replace(inputs, claims=claims, unjudged=unjudged, citations=[*in_text, *cited, *reported]),
        positions=tuple(positions),
        ready=ready,
        complete=complete,
        skipped=sum(len(sentence.verdict.claims) for sentence in sentences) - len(claims),
        delivered=frozenset(each.verdict.sentence.index for each in sentences if each.offset is not None),
    )


def _citations_in(judged: JudgedSentence, names: DocumentNames) -> Iterator[Citation]:
    if judged.offset is not None or judged.citations:
        yield from judged.citations
        return
    sentence = judged.verdict.sentence
    for citation in find_citations(sentence.text, names):
        yield replace(citation, sentence_index=sentence.index)


def withheld_texts(sentences: Sequence[JudgedSentence], findings: Findings) -> list[str]:
    """Texts that the client must not see: claims and markers of withheld sentences, and what may quote them."""
    texts = {text for each in sentences if each.offset is None for text in _quotable_texts(each)}
    if texts:
        texts.update(_explanations(findings))
    if not any(each.offset is not None for each in sentences):
        texts.update(_contradicting_texts(findings))
    return list(texts)


def _quotable_texts(judged: JudgedSentence) -> Iterator[str]:
    """What decisions may quote of a sentence."""
    yield from (claim.claim.text for claim in judged.verdict.claims)
    yield from (citation.marker for citation in judged.citations)


def llm_calls(findings: Findings) -> list[LlmCall]:
    """The calls to an LLM that the final checks made."""
    return [call for score in _scores(findings) for call in score.calls]


def _scores(findings: Findings) -> Sequence[LlmScore]:
    scores: Sequence[LlmScore] = findings.get("llm_scores", ())
    return scores


def _explanations(findings: Findings) -> list[str]:
    return [score.reasoning for score in _scores(findings) if score.reasoning]


def _contradicting_texts(findings: Findings) -> Sequence[str]:
    found: Consistency = findings.get("consistency", Consistency())
    return found.texts
