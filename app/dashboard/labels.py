"""The names under which pages show actions and verdicts."""

ACTIONS = {"allow": "allowed", "warn": "warned", "drop": "dropped", "block": "blocked"}

REPLY_VERDICTS = {
    "supported": "supported",
    "has_unverifiable": "has unverifiable claims",
    "has_contradictions": "has contradictions",
    "no_claims": "no claims",
    "no_sources": "no sources",
    "not_checked": "not checked",
}

CLAIM_VERDICTS = {
    "supported": "supported",
    "contradicted": "contradicted",
    "unverifiable": "unverifiable",
    "not_a_claim": "no claim",
}
