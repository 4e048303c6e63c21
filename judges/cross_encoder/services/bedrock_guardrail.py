"""The contextual grounding check of an Amazon Bedrock guardrail.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ApplyGuardrail.html and
https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails-contextual-grounding-check.html.

``POST /guardrail/ID/version/VERSION/apply`` takes texts with the qualifiers ``grounding_source`` (up to 100,000
characters), ``query`` (1,000) and ``guard_content`` (5,000). It returns a ``score`` from 0 to 1 for each filter, in
``assessments[].contextualGroundingPolicy.filters``. It supports English, French and Spanish.

A claim counts as supported if its score is at least the guardrail's own threshold, which is part of the response.

The check also requires the user's question. Since each claim is judged separately here, a fixed question is sent. Only
the score of the filter ``GROUNDING`` counts; the score of ``RELEVANCE``, which says how well the text answers the
question, is ignored.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from judges.cross_encoder.services.aws_signature import AwsCredentials, signed_headers
from judges.cross_encoder.services.pair_service import (
    COMMON_OPTIONS,
    Fetch,
    Key,
    PairService,
    ServiceAnswer,
    ServiceRequest,
    UnreadableAnswerError,
    entailment,
    probability,
    usage_count,
)

_QUERY = "What does the source say about this?"


class BedrockGuardrailService(PairService):
    """Options: ``guardrail``, its id or ARN; ``version``, default ``DRAFT``; ``region``; ``url``.

    The key is either an AWS access key or an Amazon Bedrock API key. Requests are signed with an access key, which has
    the form ``ACCESS_KEY_ID:SECRET_ACCESS_KEY`` or ``ACCESS_KEY_ID:SECRET_ACCESS_KEY:SESSION_TOKEN``. An API key is
    sent as a bearer token.
    """

    OPTIONS = COMMON_OPTIONS | {"guardrail", "version", "region", "url"}
    max_claim_chars = 5_000
    max_evidence_chars = 100_000
    documented_languages = frozenset({"en", "fr", "es"})

    def __init__(self, name: str, options: Mapping[str, str], key: Key, key_help: str) -> None:
        super().__init__(name, options, key, key_help)
        self._region = self._option("region", "such as us-east-1")
        identifier, chosen = self._option("guardrail", "the guardrail's id or ARN"), options.get("version", "DRAFT")
        self.name = f"{name}({identifier}, {chosen})"
        guardrail, version = quote(identifier, safe=""), quote(chosen, safe="")
        default = f"https://bedrock-runtime.{self._region}.amazonaws.com"
        base = self._base_url("url", options.get("url", default))
        self._url = f"{base}/guardrail/{guardrail}/version/{version}/apply"

    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        texts = {"grounding_source": evidence, "query": _QUERY, "guard_content": claim}
        content = [{"text": {"text": text, "qualifiers": [qualifier]}} for qualifier, text in texts.items()]
        body = json.dumps({"source": "OUTPUT", "outputScope": "FULL", "content": content}).encode()
        return ServiceRequest(url=self._url, body=body, headers=self._headers(body))

    def _headers(self, body: bytes) -> Mapping[str, str]:
        key = self._key().strip()
        identifier, colon, rest = key.partition(":")
        if not colon:
            return {"Authorization": f"Bearer {key}"}
        secret, _, session = rest.partition(":")
        return signed_headers(
            AwsCredentials(access_key_id=identifier, secret_access_key=secret, session_token=session),
            method="POST",
            url=self._url,
            body=body,
            region=self._region,
            service="bedrock",
            now=datetime.now(UTC),
            headers={"content-type": "application/json"},
        )

    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        if not isinstance(answer, dict):
            raise UnreadableAnswerError(f"{self.name}: the response is not an object")
        scores = [self._score(one) for one in _grounding_filters(answer.get("assessments"))]
        if not scores:
            raise UnreadableAnswerError(
                f"{self.name}: no grounding score; enable the guardrail's contextual grounding check"
            )
        units = usage_count(answer.get("usage"), "contextualGroundingPolicyUnits", default=1)
        return ServiceAnswer(score=entailment(min(scores)), units=units)

    def _score(self, found: Mapping[str, Any]) -> float:
        """Return the score, shifted so that it is 0.5 at the guardrail's threshold."""
        score = probability(found.get("score"), f"{self.name}: score")
        threshold = found.get("threshold")
        if not isinstance(threshold, int | float) or not 0.0 < threshold < 1.0:
            return score
        supported, rest = score * (1.0 - threshold), (1.0 - score) * threshold
        return supported / (supported + rest)


def _grounding_filters(assessments: Any) -> Iterator[Mapping[str, Any]]:
    for assessment in assessments if isinstance(assessments, list) else ():
        policy = assessment.get("contextualGroundingPolicy") if isinstance(assessment, dict) else None
        filters = policy.get("filters") if isinstance(policy, dict) else None
        for one in filters if isinstance(filters, list) else ():
            if isinstance(one, dict) and one.get("type") == "GROUNDING":
                yield one
