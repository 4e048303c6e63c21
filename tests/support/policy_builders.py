"""Short functions that build documents, claims and policies."""

from typing import Any

from judges.label_thresholds import Thresholds
from judges.types import Chunk, Claim, ClaimVerdict, Label, Source, Span
from policies.registry import CATEGORIES, parse_rules
from policies.types import Phase, Policy, PolicyInputs, Violation


def chunk(index: int = 0, **fields: Any) -> Chunk:
    defaults: dict[str, Any] = {"id": f"d{index}", "text": "…", "relevance_score": 0.9, "age_days": 1}
    return Chunk(**(defaults | fields))


def claim(
    entailed: float = 0.9,
    contradicted: float = 0.0,
    *,
    sentence: int = 0,
    text: str = "It costs 5 euros.",
    source: str | None = "faq.pdf",
    document: int | None = 0,
    **fields: Any,
) -> ClaimVerdict:
    best = document is not None and Source(
        document_id=f"d{document}",
        document_index=document,
        source=source,
        content="…",
        score=max(entailed, contradicted),
        span=Span(0, 1),
    )
    return ClaimVerdict(
        claim=Claim(text=text, span=Span(0, len(text)), sentence_index=sentence),
        label=fields.pop("label", None) or Thresholds().label(entailed, contradicted),
        entailed=entailed,
        contradicted=contradicted,
        best_source=best or None,
        **fields,
    )


NOT_A_CLAIM = Label.NOT_A_CLAIM


def policy(category: str, name: str = "p", **fields: Any) -> Policy:
    names = ("scope", "priority", "enabled", "mode", "canary_percent")
    known = {key: fields.pop(key) for key in names if key in fields}
    return Policy(id=name, name=name, category=category, rules=parse_rules(category, fields), **known)


def found(category: str, phase: Phase, rules: dict[str, Any], inputs: PolicyInputs) -> tuple[Violation, ...]:
    findings = CATEGORIES[category].evaluate(phase, parse_rules(category, rules), inputs)
    assert findings is not None
    return findings.violations
