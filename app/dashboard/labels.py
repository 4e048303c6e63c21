"""Display names of actions, verdicts and statuses."""

ACTIONS = {"allow": "allowed", "warn": "warned", "drop": "dropped", "block": "blocked"}

REPLY_VERDICTS = {
    "supported": "supported",
    "has_unverifiable": "has unverifiable claims",
    "has_contradictions": "has contradictions",
    "no_claims": "no claims",
    "no_sources": "no sources",
    "not_checked": "not checked",
}

STATUSES = {
    "completed": "completed",
    "blocked": "blocked",
    "cancelled": "cancelled by the client",
    "incomplete": "incomplete",
    "upstream_error": "upstream error",
    "failed": "failed",
}

CLAIM_VERDICTS = {
    "supported": "supported",
    "contradicted": "contradicted",
    "unverifiable": "unverifiable",
    "not_a_claim": "no claim",
}
