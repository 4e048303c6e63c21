"""Does the reply contain text that nobody judged, and how much of it?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from judges.types import Sentence, SentenceVerdict, Span, Standing
from policies import number_format
from policies.grounding.claim_actions import is_left_out
from policies.grounding.rules import GroundingRules
from policies.redaction import ELLIPSIS
from policies.types import Action, PolicyInputs, UnjudgedText, Violation

_REASON = "Unjudged text "

NO_DOCUMENTS = "no_documents"
"""The kind of a reply without documents."""
UNAVAILABLE = "unavailable"
"""The kind of text that no judge could be found for."""


def check_sentence_unjudged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Unjudged text that must not be sent: it blocks the reply or is left out."""
    if rules.unjudged_action == "block":
        yield from (_violation(text, Action.BLOCK) for text in joined(inputs.unjudged))
    elif is_left_out(rules, replaceable=inputs.strippable):
        yield from (_violation(text, Action.DROP) for text in joined(inputs.unjudged))


def check_unjudged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Unjudged text of the whole reply, except what was left out. If the reply has no documents, that is no reason to
    warn: the decision says so anyway."""
    if rules.unjudged_action == "allow" or is_left_out(rules, replaceable=inputs.strippable):
        return
    action = Action.BLOCK if rules.unjudged_action == "block" else Action.WARN
    for text in joined(inputs.unjudged):
        if action is Action.BLOCK or text.kind != NO_DOCUMENTS:
            yield _violation(text, action)


def check_coverage(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """The share of the reply that is judged or harmless is below ``min_coverage``."""
    coverage, minimum = inputs.coverage, rules.min_coverage
    if coverage is not None and coverage < minimum:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Coverage {number_format.share_below(coverage, minimum)} below minimum "
            f"{number_format.limit(minimum)}",
            reason_code="GROUNDING_COVERAGE",
            metadata={"coverage": coverage, "minimum": minimum},
        )


def joined(unjudged: Sequence[UnjudgedText]) -> list[UnjudgedText]:
    """``unjudged`` with neighbours of one kind joined: a block of code is one text, however many sentences it is."""
    runs: list[list[UnjudgedText]] = []
    for text in unjudged:
        last = runs[-1][-1] if runs else None
        if last is not None and (last.kind, last.span.end) == (text.kind, text.span.start):
            runs[-1].append(text)
        else:
            runs.append([text])
    return [
        replace(run[0], span=Span(run[0].span.start, run[-1].span.end), text="".join(text.text for text in run))
        for run in runs
    ]


def quotes_unjudged(reason: str) -> bool:
    """Whether ``reason``, which may be that of several violations, quotes unjudged text."""
    return _REASON in reason


def _violation(text: UnjudgedText, action: Action) -> Violation:
    return Violation(
        action=action,
        reason=f'{_REASON}({text.kind}): "{text.excerpt}"',
        reason_code="GROUNDING_UNJUDGED",
        metadata={"kind": text.kind, "characters": text.characters},
        without_text=f'{_REASON}({text.kind}): "{ELLIPSIS}"',
    )


def unjudged_texts(verdict: SentenceVerdict) -> list[UnjudgedText]:
    """The text of a sentence that is neither judged nor harmless, in order. Nobody looked at a sentence without parts:
    all of it is unjudged."""
    sentence = verdict.sentence
    if not verdict.parts:
        return [] if sentence.text.isspace() else [_text(sentence, sentence.span, UNAVAILABLE)]
    return [
        _text(sentence, part.span, part.kind or UNAVAILABLE)
        for part in verdict.parts
        if part.standing is Standing.UNJUDGED
    ]


def _text(sentence: Sentence, span: Span, kind: str) -> UnjudgedText:
    start = sentence.span.start
    text = sentence.text[span.start - start : span.end - start]
    return UnjudgedText(kind=kind, span=span, sentence_index=sentence.index, text=text)
