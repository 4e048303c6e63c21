"""Warns about grounding rules that are valid but won't work as intended."""

from collections.abc import Iterator, Sequence

from policies.base import GatewayFacts, RuleWarning
from policies.grounding.rules import GroundingRules


def rule_warnings(
    rules: GroundingRules, facts: GatewayFacts, *, whole_reply: Sequence[str] = ()
) -> Iterator[RuleWarning]:
    """Yield the warnings about ``rules``, by field. ``whole_reply`` has the names of the blocking rules that need the
    whole reply."""
    yield from _citations(rules)
    yield from _floor(rules)
    yield from _llm(rules, facts)
    yield from _stream_mode(rules, whole_reply)
    if rules.stream_mode == "live":
        yield from _live(rules)


def _floor(rules: GroundingRules) -> Iterator[RuleWarning]:
    if rules.score_relevance_floor is not None and rules.score_source == "judge":
        yield _warning(
            "score_relevance_floor",
            "The floor doesn't apply to the judge's scores. Set score_source to 'reported' or 'retrieval', or remove "
            "the floor.",
        )


def _citations(rules: GroundingRules) -> Iterator[RuleWarning]:
    blocks = rules.action_on_violation == "block"
    demanding = {
        "require_source_grounding": rules.require_source_grounding,
        "min_citations": rules.min_citations > 1 or (rules.min_citations == 1 and blocks),
    }
    for name, demands in demanding.items():
        if demands:
            yield _warning(
                name,
                "Models rarely cite documents unless they are asked to. Set grounding.inject to 'system' or 'user' in "
                "each request, or ask for citations in your prompt.",
            )


def _llm(rules: GroundingRules, facts: GatewayFacts) -> Iterator[RuleWarning]:
    if rules.contradiction_action == "correct" and facts.llm_fault is not None:
        yield _warning(
            "contradiction_action",
            f"No LLM judge can write corrections ({facts.llm_fault}), so action_on_violation applies to each "
            "contradicted claim. Set GROUNDLANE_LLM_JUDGE_MODEL.",
        )
    if rules.llm_grounding_check and (fault := facts.llm_model_fault(rules.llm_grounding_model)) is not None:
        yield _warning("llm_grounding_model", f"The LLM grounding check is skipped: {fault}.")


def _stream_mode(rules: GroundingRules, whole_reply: Sequence[str]) -> Iterator[RuleWarning]:
    names = ", ".join(whole_reply)
    if not names:
        return
    if rules.stream_mode == "hold":
        yield _warning(
            "stream_mode",
            f"'hold' works like 'final', because these rules block and need the whole reply: {names}. Set stream_mode "
            "to 'final' to make that explicit.",
        )
    elif rules.stream_mode == "live":
        yield _warning(
            "stream_mode",
            f"With 'live', all of the text has been sent before these rules can block it: {names}. Set stream_mode to "
            "'final'.",
        )


def _live(rules: GroundingRules) -> Iterator[RuleWarning]:
    instead = "Set stream_mode to 'hold' or 'final'."
    if rules.unjudged_action == "block":
        yield _warning(
            "unjudged_action",
            f"With stream_mode 'live', text is sent before it is judged: 'block' only ends the stream. {instead}",
        )
    replacing = {"unjudged_action": "strip", "unverifiable_action": "strip", "contradiction_action": "correct"}
    for name, action in replacing.items():
        if getattr(rules, name) == action:
            yield _warning(
                name, f"With stream_mode 'live', text is sent before it is judged: {action!r} has no effect. {instead}"
            )


def _warning(rule: str, message: str) -> RuleWarning:
    return RuleWarning(loc=("rules", rule), msg=message)
