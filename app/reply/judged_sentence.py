"""A judged sentence with its position in the delivered text, and functions for several sentences."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from app.events.request_record import SentenceRecord
from judges.concurrency import FreedInSteps
from judges.llm_types import LlmCall
from judges.report import SKIPPED, letters
from judges.types import ClaimVerdict, Label, SentenceVerdict, Source, Span
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.grounding.sentence_checks import unjudged_texts
from policies.replay import ChoiceLog
from policies.types import Citation, PolicyInputs

Findings = Mapping[str, Any]
"""The results of the final checks of the whole reply, as fields of ``policies.types.PolicyInputs``."""


@dataclass(slots=True, kw_only=True)
class JudgedSentence:
    """A sentence that was judged.

    - ``offset``: the start of the sentence in the delivered text, or None if it was not delivered.
    - ``citations``: the citations in its text. ``noted`` contains the citations that the upstream reports separately.
    - ``corrected``: the span of the correction that replaces the sentence in the delivered text, if there is one.
    - ``retracted``: whether a further upstream call replaced the sentence.
    - ``structure``: whether the sentence is markup between the strings of a JSON reply.
    - ``left_out``: the parts of the upstream's reply that were left out of the sentence, in order.
    - ``times``: when the sentence was complete and when it was judged, in milliseconds since the request arrived, or
      None if unknown.
    - ``field``: the reasoning field that contains the sentence, or None for the text of the reply itself. Positions in
      the delivered text refer to this field.
    - ``begin``: the start of the sentence in the upstream's text of the field.
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
    field: str | None = None
    begin: int = 0

    @property
    def shown(self) -> bool:
        """Whether the client received the sentence or its correction."""
        return self.offset is not None or self.corrected is not None

    @property
    def supporting(self) -> list[Source]:
        """The passages that support the delivered text."""
        claims = self.verdict.claims
        if self.corrected is not None:
            return [c.contradicting_source for c in claims if c.correction and c.contradicting_source is not None]
        return [c.best_source for c in claims if c.label is Label.SUPPORTED and c.best_source is not None]

    @property
    def span(self) -> Span | None:
        """The span of the sentence or its correction in the delivered text, without surrounding whitespace."""
        if self.offset is None:
            return self.corrected
        sentence = self.verdict.sentence
        text, begin = sentence.text, sentence.span.start
        start = self.place(begin + len(text) - len(text.lstrip()))
        return Span(start, max(start, self.place(begin + len(text.rstrip()))))

    @property
    def delivered_verdict(self) -> SentenceVerdict:
        """The verdict on the delivered text, without the parts that were left out."""
        if not self.left_out:
            return self.verdict
        gone = frozenset(self.left_out)
        return structs.replace(self.verdict, parts=tuple(part for part in self.verdict.parts if part.span not in gone))

    @property
    def letters(self) -> int:
        """The number of letters and digits in the sentence, without the parts that were left out."""
        sentence = self.verdict.sentence
        start = sentence.span.start
        gone = sum(letters(sentence.text[span.start - start : span.end - start]) for span in self.left_out)
        return letters(sentence.text) - gone

    def place(self, position: int) -> int:
        """Convert a position in the upstream's reply to a position in the delivered text. The sentence must have been
        delivered.
        """
        place = (self.offset or 0) + position - self.verdict.sentence.span.start
        if not self.left_out:
            return place
        return place - sum(min(span.end, position) - span.start for span in self.left_out if span.start < position)


def policy_claims(verdicts: Iterable[SentenceVerdict]) -> list[ClaimVerdict]:
    """Return the claims for the policies. Claims beyond ``max_claims`` are left out and reported as skipped."""
    return [claim for verdict in verdicts for claim in verdict.claims if claim.reason != SKIPPED]


def standing(sentences: Sequence[JudgedSentence]) -> list[JudgedSentence]:
    """Return the sentences that no further upstream call replaced."""
    return [sentence for sentence in sentences if not sentence.retracted]


def sentence_records(sentences: Sequence[JudgedSentence]) -> list[SentenceRecord]:
    """Convert the sentences to the form that the event log stores."""
    return FreedInSteps(
        SentenceRecord(
            verdict=sentence.verdict,
            delivered=sentence.offset is not None,
            retracted=sentence.retracted,
            times=sentence.times,
        )
        for sentence in sentences
        if not sentence.structure
    )


def choice_log(
    inputs: Callable[..., PolicyInputs],
    sentences: Sequence[JudgedSentence],
    *,
    cited: Sequence[Citation],
    reported: Sequence[Citation],
    names: DocumentNames,
    positions: Sequence[int],
    ready: bool,
    complete: bool,
) -> ChoiceLog:
    """Return the log of a choice, which a simulation can use to evaluate other policies. It includes sentences that
    were left out, because other policies might have delivered them. ``inputs`` builds the policy inputs, to which the
    findings in the other arguments are added. ``cited`` contains the citations that the upstream reports, and
    ``reported`` contains those that the caller reports. Citations in the text come from ``sentences``. For a sentence
    that was left out, they are read from its text."""
    claims: dict[int | None, Sequence[ClaimVerdict]] = {
        sentence.verdict.sentence.index: sentence.verdict.claims for sentence in sentences
    }
    found = inputs(
        unjudged=tuple([text for sentence in sentences for text in unjudged_texts(sentence.verdict)]),
        citations=(
            *[
                citation
                for sentence in sentences
                for citation in (*sentence.citations, *left_out_citations(sentence, names))
            ],
            *[each.attributed(claims.get(each.sentence_index, ())) for each in cited],
            *reported,
        ),
    )
    return ChoiceLog(
        inputs=found,
        positions=tuple(positions),
        ready=ready,
        complete=complete,
        skipped=sum(len(sentence.verdict.claims) for sentence in sentences) - len(found.claims),
        delivered=frozenset(each.verdict.sentence.index for each in sentences if each.offset is not None),
    )


def left_out_citations(judged: JudgedSentence, names: DocumentNames) -> Iterator[Citation]:
    """If the whole sentence was left out or replaced, yield its citations. If only parts of it were left out, yield the
    citation markers in those parts that refer to no document."""
    if judged.offset is not None and not judged.left_out:
        return
    sentence = judged.verdict.sentence
    known = {citation.marker for citation in judged.citations}
    for citation in find_citations(sentence.text, names):
        if citation.marker not in known and (judged.offset is None or citation.document_index is None):
            yield replace(citation, sentence_index=sentence.index).attributed(judged.verdict.claims)


def llm_calls(findings: Findings) -> list[LlmCall]:
    """Return the LLM calls of the final checks."""
    return [call for score in findings.get("llm_scores", ()) for call in score.calls]
