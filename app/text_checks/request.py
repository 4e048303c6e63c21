"""Parses the request for a text check."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.errors import InvalidRequestError
from app.protocols.documents.document_extraction import Documents, Limits
from app.protocols.documents.json_body import join_path, read_string, refuse
from judges.types import Chunk
from policies.base import RulesError
from policies.grounding.evaluator import GroundingRules
from policies.registry import parse_rules

_FIELDS = frozenset({"text", "question", "sources", "documents", "policy", "options"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A request for a text check. ``question`` is the user's message that the text answers, or None if it isn't known.
    ``policy`` is the id or name of a policy, and ``options`` contains rules to use instead. At most one of the two is
    set. ``paths`` contains the path in the request of each document in ``chunks``."""

    text: str
    question: str | None = None
    chunks: tuple[Chunk, ...]
    paths: tuple[str, ...]
    policy: str | None = None
    options: GroundingRules | None = None

    def path_of(self, index: int) -> str:
        return self.paths[index]


def read_check(body: Mapping[str, Any], limits: Limits) -> CheckRequest:
    """Parse a check from decoded JSON. Raises InvalidRequestError, which names the field."""
    for name in body:
        if name not in _FIELDS:
            where = join_path("", [name])
            raise InvalidRequestError(f"{where}: unknown field.", param=where)
    documents = _sources(body.get("sources"), body.get("documents"), limits)
    policy = read_string(body.get("policy"), "policy")
    options = body.get("options")
    if policy is not None and options is not None:
        raise InvalidRequestError("options: cannot be combined with policy, which has its own rules.", param="options")
    return CheckRequest(
        text=_text(body.get("text"), "text", limits),
        question=_question(body.get("question"), limits),
        chunks=tuple(documents.chunks),
        paths=tuple(documents.paths),
        policy=policy,
        options=None if options is None else _rules(options),
    )


def _question(question: Any, limits: Limits) -> str | None:
    """Return the question, or None if it isn't known. Blank text says nothing about what the user asked."""
    text = "" if question is None else _text(question, "question", limits)
    return text if text.strip() else None


def _text(text: Any, name: str, limits: Limits) -> str:
    if not isinstance(text, str):
        refuse(name, "a string", text)
    if len(text) > limits.document_chars:
        raise InvalidRequestError(
            f"{name}: {len(text)} characters exceed the limit of {limits.document_chars}.", param=name
        )
    return text


def _sources(sources: Any, documents: Any, limits: Limits) -> Documents:
    if sources is not None and documents is not None:
        raise InvalidRequestError("sources: use either sources or documents, not both.", param="sources")
    found = Documents(limits, prefix="doc" if sources is None else "source")
    if sources is None:
        found.take_all(documents)
        return found
    if not isinstance(sources, list):
        refuse("sources", "a list of strings", sources)
    for index, source in enumerate(sources):
        if not isinstance(source, str):
            refuse(f"sources[{index}]", "a string", source)
    found.take_all(sources, "sources")
    return found


_OPTION_DEFAULTS = {"min_citations": 0, "min_grounding_score": 0.0}
"""Rules that are off in a text check unless the options set them. ``min_grounding_score`` is off because verdicts
already depend on the thresholds. ``min_citations`` is off because the text need not cite the documents that it is
compared with."""


def _rules(options: Any) -> GroundingRules:
    try:
        rules = parse_rules("grounding", _OPTION_DEFAULTS | options if isinstance(options, dict) else options)
    except RulesError as error:
        first = error.errors[0]
        where = join_path("options", first["loc"][1:])
        raise InvalidRequestError(f"{where}: {first['msg']}.", param=where) from None
    if not isinstance(rules, GroundingRules):
        raise TypeError("the rules belong to a different category")
    if rules.llm_grounding_criteria:
        where = "options.llm_grounding_criteria"
        raise InvalidRequestError(f"{where}: only a policy can set criteria for an LLM judge.", param=where)
    return rules
