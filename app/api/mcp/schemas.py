"""The JSON Schemas of the tool ``check_grounding``, written for models."""

from typing import Any

from policies.grounding.rules import GroundingRules

DESCRIPTION = (
    "Check a text against its sources, claim by claim, before you rely on it or show it to anyone. Each claim is "
    "'supported', 'contradicted' or 'unverifiable' (no source addresses it), and comes with the passage behind the "
    "verdict. Pass the sources as plain texts in 'sources', or with metadata in 'documents'. 'grounded' is true if "
    "the whole text was judged, no claim is contradicted, the share of unverifiable claims is within the limit, and "
    "the policy allows the text."
)

_OFFERED = (
    "entailment_threshold",
    "contradiction_threshold",
    "max_unverifiable_ratio",
    "max_sources_per_claim",
    "max_claims",
)
"""The rules of a grounding policy that affect a check. Other rules are accepted too."""

_DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "id": {"type": "string", "description": "Identifies the document in the result"},
        "source": {"type": "string", "description": "File, page or other origin of the document"},
    },
    "required": ["text"],
}


def _options() -> dict[str, Any]:
    rules = GroundingRules.model_json_schema()["properties"]
    return {
        "type": "object",
        "description": "Overrides of the default rules; cannot be combined with 'policy'",
        "properties": {name: rules[name] for name in _OFFERED},
    }


INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The text to check"},
        "question": {"type": "string", "description": "The user's message that the text answers"},
        "sources": {"type": "array", "items": {"type": "string"}, "description": "Sources to check the text against"},
        "documents": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _DOCUMENT]},
            "description": "The sources, with metadata; cannot be combined with 'sources'",
        },
        "policy": {"type": "string", "description": "Name or id of the gateway's grounding policy to apply"},
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
        "score": {"type": "number", "description": "How strongly the source supports or contradicts the claim, 0 to 1"},
    },
    "required": ["chunk_id", "content", "score"],
}

_CLAIM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "claim": {"type": "string"},
        "verdict": {"enum": ["supported", "contradicted", "unverifiable"]},
        "confidence": {
            "anyOf": [{"type": "number"}, {"type": "null"}],
            "description": "Probability of the verdict, 0 to 1; null if the claim was not judged",
        },
        "best_source": {"anyOf": [_SOURCE, {"type": "null"}]},
        "escalated": {"type": "boolean", "description": "Whether an LLM also judged the claim"},
        "span": {
            "type": "object",
            "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
            "description": "Position of the claim in the text, in code points",
        },
        "spans": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "start": {"type": "integer"},
                    "end": {"type": "integer"},
                    "score": {"type": "number", "description": "Probability that no source supports this part, 0 to 1"},
                },
                "required": ["start", "end", "score"],
            },
            "description": "Parts of the text that no source supports, if the judge reports them",
        },
        "reason": {"type": "string", "description": "Why there is no verdict"},
        "explanation": {"type": "string"},
        "correction": {"type": "string"},
        "corrected": {"type": "string", "description": "The claim with the correction marked"},
    },
    "required": ["claim", "verdict", "confidence", "best_source", "escalated"],
}

_UNJUDGED: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "start": {"type": "integer"}, "end": {"type": "integer"}},
    "required": ["kind", "start", "end"],
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
        "is_trusted": {"type": "boolean"},
        "coverage": {"type": "number", "description": "Share of the text that was judged or makes no claim"},
        "claims_skipped": _COUNT,
        "unjudged": {
            "type": "array",
            "items": _UNJUDGED,
            "description": "Unjudged parts of the text, with their positions",
        },
        "trust_score": {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "Share of supported claims"},
        "action": {
            "enum": ["allow", "warn", "drop", "block"],
            "description": "The action that the policy or the options require",
        },
    },
    "required": ["grounded", "summary", "claims", "total_claims"],
}
