"""Vectara's factual consistency API.

Sources: Vectara's API reference (https://docs.vectara.com/docs/rest-api) and official client
(https://github.com/vectara/python-sdk).

The body of ``POST /v2/evaluate_factual_consistency`` has ``generated_text`` and ``source_texts``. The response has a
``score`` from 0 to 1, which is higher for more consistent texts. Status 422 means that the service does not support the
text's language. The reference states no length limit; the limits here are our choice.
"""

import json
from collections.abc import Mapping
from typing import Any

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
)


class VectaraService(PairService):
    """Options: ``url`` for a deployment other than Vectara's own."""

    OPTIONS = COMMON_OPTIONS | {"url"}
    max_claim_chars = 5_000
    max_evidence_chars = 100_000

    def __init__(self, name: str, options: Mapping[str, str], key: Key, key_help: str) -> None:
        super().__init__(name, options, key, key_help)
        self._url = self._base_url("url", options.get("url", "https://api.vectara.io"))

    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        body = {"generated_text": claim, "source_texts": [evidence]}
        return ServiceRequest(
            url=f"{self._url}/v2/evaluate_factual_consistency",
            body=json.dumps(body).encode(),
            headers={"x-api-key": self._key()},
        )

    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        if not isinstance(answer, dict):
            raise UnreadableAnswerError(f"{self.name}: the response is not an object")
        return ServiceAnswer(score=entailment(probability(answer.get("score"), f"{self.name}: score")))
