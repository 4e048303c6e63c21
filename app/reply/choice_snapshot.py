"""What one choice of a reply came to, for the decisions to be made again from."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.reply.grounding_object import JudgedSentence
from judges.report import SKIPPED
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.replay import ChoiceLog
from policies.types import Citation, PolicyInputs


def choice_log(
    inputs: PolicyInputs,
    entries: Sequence[JudgedSentence],
    *,
    cited: Sequence[Citation],
    reported: Sequence[Citation],
    names: DocumentNames,
    positions: Sequence[int],
    ready: bool,
    complete: bool,
) -> ChoiceLog:
    """``inputs`` with what was left out of the reply too: other policies might have left it in.

    ``cited`` are the citations of the upstream's, ``reported`` those of the caller's; those in the text stand in
    ``entries`` or, where a sentence was left out, in its text.
    """
    claims = [claim for entry in entries for claim in entry.verdict.claims]
    judged = [claim for claim in claims if claim.reason != SKIPPED]
    in_text = (citation for entry in entries for citation in _citations(entry, names))
    return ChoiceLog(
        inputs=replace(inputs, claims=judged, citations=[*in_text, *cited, *reported]),
        positions=tuple(positions),
        ready=ready,
        complete=complete,
        skipped=len(claims) - len(judged),
        delivered=frozenset(entry.verdict.sentence.index for entry in entries if entry.offset is not None),
    )


def _citations(entry: JudgedSentence, names: DocumentNames) -> Iterator[Citation]:
    if entry.offset is not None or entry.citations:
        yield from entry.citations
        return
    sentence = entry.verdict.sentence
    for citation in find_citations(sentence.text, names):
        yield replace(citation, sentence_index=sentence.index)
