"""The JSON Schemas of the tool ``check_grounding``, written for models."""

from typing import Any

from policies.grounding.rules import GroundingRules

DESCRIPTION = (
    "Check a text against its sources, claim by claim, before you rely on it or show it to anybody. Each claim is "
    "'supported', 'contradicted' or 'unverifiable' (no source speaks to it), with the passage that decided. Give the "
    "sources as plain texts in 'sources', or with what is known of them in 'documents'. 'grounded' is true if nothing "
    "is contradicted and no larger share is unverifiable than the options allow."
)

_OFFERED = (
    "entailment_threshold",
    "contradiction_threshold",
    "max_unverifiable_ratio",
    "max_sources_per_claim",
    "max_claims",
)
"""The rules of a grounding policy that affect a check. The others are accepted too."""

_DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "id": {"type": "string", "description": "By which the result names it"},
        "source": {"type": "string", "description": "File, page or other place it comes from"},
    },
    "required": ["text"],
}


def _options() -> dict[str, Any]:
    rules = GroundingRules.model_json_schema()["properties"]
    return {
        "type": "object",
        "description": "Rules other than the default ones; not together with 'policy'",
        "properties": {name: rules[name] for name in _OFFERED},
    }


INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The text to check"},
        "sources": {"type": "array", "items": {"type": "string"}, "description": "The sources to check it against"},
        "documents": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _DOCUMENT]},
            "description": "The sources with metadata; not together with 'sources'",
        },
        "policy": {"type": "string", "description": "Name or id of a grounding policy of the gateway to apply"},
        "options": _options(),
    },
    "required": ["text"],
    "additionalProperties": False,
}

_SOURCE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "chunk_id": {"type": "string"},
        "content": {"type": "string"},
        "score": {"type": "number", "description": "How strongly it supports or contradicts the claim, 0 to 1"},
    },
    "required": ["chunk_id", "content", "score"],
}

_CLAIM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "claim": {"type": "string"},
        "verdict": {"enum": ["supported", "contradicted", "unverifiable"]},
        "confidence": {"type": "number", "description": "Probability of the verdict, 0 to 1"},
        "best_source": {"anyOf": [_SOURCE, {"type": "null"}]},
        "escalated": {"type": "boolean", "description": "An LLM judged it as well"},
        "span": {
            "type": "object",
            "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
            "description": "Its position in the text, in code points",
        },
        "reason": {"type": "string", "description": "Why there is no verdict"},
        "explanation": {"type": "string"},
        "correction": {"type": "string"},
    },
    "required": ["claim", "verdict", "confidence", "best_source", "escalated"],
}

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}

OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "grounded": {"type": "boolean"},
        "summary": {"type": "string"},
        "claims": {"type": "array", "items": _CLAIM},
        "total_claims": _COUNT,
        "supported_count": _COUNT,
        "contradicted_count": _COUNT,
        "unverifiable_count": _COUNT,
        "unverifiable_ratio": {"type": "number"},
        "trust_score": {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "Share of supported claims"},
        "action": {
            "enum": ["allow", "warn", "drop", "block"],
            "description": "The decision of the policy or the options",
        },
    },
    "required": ["grounded", "summary", "claims", "total_claims"],
}
