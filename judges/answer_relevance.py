"""Measures whether a reply answers the question, by looking for the question's words in the reply and in its evidence.

A reply often doesn't use the words of the question ("You pay 20 euros for it."). The words of the evidence for its
claims count too, because the evidence shows what the reply is about.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from judges.features.parsed_text import Prepared, prepare
from judges.features.sentence_pair import held
from judges.types import Chunk, ClaimVerdict, Label, QuestionPart

_MAX_QUESTION_CHARS: Final = 2_000
_MAX_DOCUMENT_CHARS: Final = 200_000
_MAX_PARTS: Final = 8
_HALF: Final = 0.5
_CUT: Final = re.compile(
    r"(?<=[?？;]) |[,;]? (?:and|und|et|y) (?=(?:what|when|where|which|who|whose|whom|why|how|do|does|did|is|are"
    r"|was|were|can|may|must|should|will|wann|wo|wer|warum|wie|welche\w*|quand|où|qui|pourquoi|comment|qué|cuándo"
    r"|dónde|quién|cómo|cuál\w*)\b)",
    re.IGNORECASE,
)


def answer_relevance(question: str, claims: Sequence[ClaimVerdict]) -> float | None:
    """Return the weighted share (0 to 1) of the question's content words that occur in ``claims`` or in their evidence.
    Return None if the question has no content words or the reply makes no claims. A refusal, for example, makes no
    claims, but that doesn't make it irrelevant."""
    weights = _weights(prepare(question[:_MAX_QUESTION_CHARS]))
    stated = [claim for claim in claims if claim.label is not Label.NOT_A_CLAIM]
    total = sum(weights.values())
    if not stated or not total:
        return None
    return held(weights, _keys(stated)) / total


def question_parts(question: str) -> list[str]:
    """Split a question into its sentences and conjoined questions, at most eight."""
    parts = [part.strip() for part in _CUT.split(" ".join(question[:_MAX_QUESTION_CHARS].split()))]
    return [part for part in parts if part][:_MAX_PARTS]


def answered_parts(question: str, claims: Sequence[ClaimVerdict], chunks: Sequence[Chunk]) -> tuple[QuestionPart, ...]:
    """Compare each part of the question with the documents and with the reply. Skip parts that have no content
    words."""
    texts = [(part, _weights(prepare(part))) for part in question_parts(question)]
    sentences = [sentence for chunk in chunks for sentence in prepare(chunk.text[:_MAX_DOCUMENT_CHARS]).sentences]
    stated = [claim for claim in claims if claim.label is not Label.NOT_A_CLAIM]
    keys = _keys(stated)
    found = []
    for text, weights in texts:
        if total := sum(weights.values()):
            best = max((held(weights, sentence.weights) for sentence in sentences), default=0.0)
            found.append(
                QuestionPart(
                    text=text,
                    in_documents=best >= _HALF * total,
                    in_reply=held(weights, keys) >= _HALF * min(total, best or total),
                )
            )
    return tuple(found)


def _weights(text: Prepared) -> dict[str, float]:
    return {key: weight for sentence in text.sentences for key, weight in sentence.weights.items()}


def _keys(claims: Sequence[ClaimVerdict]) -> frozenset[str]:
    """Return the words of the claims and, for each claim, those of the closest sentence in its evidence."""
    return frozenset[str]().union(*(keys for claim in claims for keys in _keys_of(claim)))


def _keys_of(claim: ClaimVerdict) -> Iterator[frozenset[str]]:
    stated = prepare(claim.claim.text)
    yield stated.keys
    source = claim.deciding_source
    if source is not None:
        # A passage has several sentences. The one that shares the most words and quantities with the claim shows what
        # the claim is about.
        weights = {key: sentence.weights.get(key, 1.0) for sentence in stated.sentences for key in sentence.keys}
        near = max(prepare(source.content).sentences, key=lambda each: held(weights, each.keys), default=None)
        if near is not None and held(weights, near.keys) > 0:
            yield frozenset(near.weights)
