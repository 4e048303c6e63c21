"""One choice of a reply as its decisions can be replayed: with the sentences that were left out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.reply.judged_sentence import JudgedSentence, policy_claims
from policies.citations.document_names import DocumentNames
from policies.citations.extraction import find_citations
from policies.replay import ChoiceLog
from policies.types import Citation, PolicyInputs


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
    in_text = (citation for sentence in sentences for citation in _citations(sentence, names))
    return ChoiceLog(
        inputs=replace(inputs, claims=claims, citations=[*in_text, *cited, *reported]),
        positions=tuple(positions),
        ready=ready,
        complete=complete,
        skipped=sum(len(sentence.verdict.claims) for sentence in sentences) - len(claims),
        delivered=frozenset(each.verdict.sentence.index for each in sentences if each.offset is not None),
    )


def _citations(judged: JudgedSentence, names: DocumentNames) -> Iterator[Citation]:
    if judged.offset is not None or judged.citations:
        yield from judged.citations
        return
    sentence = judged.verdict.sentence
    for citation in find_citations(sentence.text, names):
        yield replace(citation, sentence_index=sentence.index)
