"""The check grounding API of Google Cloud (Vertex AI Search).

Sources: https://cloud.google.com/generative-ai-app-builder/docs/check-grounding and
``google/cloud/discoveryengine/v1/grounded_generation_service.proto``.

``POST /v1/projects/P/locations/global/groundingConfigs/default_grounding_config:check`` takes an ``answerCandidate`` of
up to 4,096 tokens, and up to 200 ``facts`` of up to 10,000 characters each. The response has ``supportScore``,
``claims`` and ``citedChunks``. Each claim has ``citationIndices`` and, on request, a ``score``. The ``source`` of a
cited chunk is the index of the fact. A claim with ``groundingCheckRequired: false`` was not checked. The documentation
lists no languages.

The response says which facts support a claim, so all windows of a claim are sent in one request.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judges.cross_encoder.services.google_token import GoogleToken
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
from judges.types import EvidenceWindows, Probabilities

_MAX_FACT_CHARS = 10_000


class VertexCheckGroundingService(PairService):
    """Options: ``project``, the id of the Google Cloud project; ``location``, default ``global``; ``url``."""

    OPTIONS = COMMON_OPTIONS | {"project", "location", "url"}
    attributes = True
    max_claim_chars = 4_000
    max_evidence_chars = 200 * _MAX_FACT_CHARS

    def __init__(self, name: str, options: Mapping[str, str], key: Key, key_help: str) -> None:
        super().__init__(name, options, key, key_help)
        base = self._base_url("url", options.get("url", "https://discoveryengine.googleapis.com"))
        project = self._option("project", "the id of the Google Cloud project")
        config = f"projects/{project}/locations/{options.get('location', 'global')}"
        self._url = f"{base}/v1/{config}/groundingConfigs/default_grounding_config:check"
        self._project = project
        self._token = GoogleToken(name)

    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        body = {
            "answerCandidate": claim,
            "facts": [{"factText": piece} for text in _texts(evidence) for piece in _pieces(text)],
            "groundingSpec": {"enableClaimLevelScore": True},
        }
        token = await self._token.get(self._key(), fetch)
        headers = {"Authorization": f"Bearer {token}", "X-Goog-User-Project": self._project}
        return ServiceRequest(url=self._url, body=json.dumps(body).encode(), headers=headers)

    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        claims = answer.get("claims", []) if isinstance(answer, dict) else None
        if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
            raise UnreadableAnswerError(f"{self.name}: the response has no list of claims")
        checked = [claim for claim in claims if claim.get("groundingCheckRequired") is not False]
        if not checked:
            raise UnreadableAnswerError(f"{self.name}: the service decided that the text needs no check")
        overall = answer.get("supportScore")
        scores = [probability(claim.get("score", overall), f"{self.name}: score") for claim in checked]
        entailed = min(scores)
        texts = _texts(evidence)
        if len(texts) < 2:
            return ServiceAnswer(score=entailment(entailed))
        cited = self._cited(answer, checked, [len(_pieces(text)) for text in texts])
        parts = tuple(entailment(entailed if place in cited else 0.0) for place in range(len(texts)))
        return ServiceAnswer(score=Probabilities(entailed, 1.0 - entailed, 0.0, parts=parts))

    def _cited(self, answer: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], pieces: Sequence[int]) -> set[int]:
        """Return the positions of the texts that the claims cite. ``pieces`` is the number of facts from each text."""
        owners = [place for place, count in enumerate(pieces) for _ in range(count)]
        chunks = answer.get("citedChunks", [])
        try:
            cited = [_at(chunks, index) for claim in claims for index in claim.get("citationIndices", [])]
            return {_at(owners, int(chunk["source"])) for chunk in cited}
        except (TypeError, ValueError, LookupError, OverflowError):
            raise UnreadableAnswerError(
                f"{self.name}: a citation refers to a fact that is not in the request"
            ) from None


def _at(items: Any, index: int) -> Any:
    if index < 0:
        raise IndexError
    return items[index]


def _texts(evidence: str) -> tuple[str, ...]:
    return evidence.parts if isinstance(evidence, EvidenceWindows) else (evidence,)


def _pieces(text: str) -> list[str]:
    return [text[start : start + _MAX_FACT_CHARS] for start in range(0, max(1, len(text)), _MAX_FACT_CHARS)]
