"""Groundedness detection in Azure AI Content Safety, without its reasoning.

Sources: https://learn.microsoft.com/azure/ai-services/content-safety/quickstart-groundedness and the REST types of
``@azure-rest/ai-content-safety``.

``POST /contentsafety/text:detectGroundedness`` takes ``text`` of up to 7,500 characters and ``groundingSources`` of up
to 55,000. It returns ``ungroundedDetected``, ``ungroundedPercentage`` (the share of the text that is not grounded, 0 to
1) and ``ungroundedDetails``. The API is a preview and supports English.

Microsoft has confirmed a bug (https://learn.microsoft.com/answers/questions/2238565): text of more than 750 characters
is always reported as grounded. Longer claims are therefore judged in parts.
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

_API_VERSION = "2024-09-15-preview"
_DOMAINS = ("Generic", "Medical")


class AzureGroundednessService(PairService):
    """Options: ``endpoint`` of the Content Safety resource; ``domain``, ``Generic`` (default) or ``Medical``;
    ``api_version``."""

    OPTIONS = COMMON_OPTIONS | {"endpoint", "domain", "api_version"}
    max_claim_chars = 750
    max_evidence_chars = 55_000
    documented_languages = frozenset({"en"})

    def __init__(self, name: str, options: Mapping[str, str], key: Key, key_help: str) -> None:
        super().__init__(name, options, key, key_help)
        base = self._base_url("endpoint", self._option("endpoint", "such as https://NAME.cognitiveservices.azure.com"))
        version = options.get("api_version", _API_VERSION)
        self._url = f"{base}/contentsafety/text:detectGroundedness?api-version={version}"
        self._domain = options.get("domain", "Generic").capitalize()
        if self._domain not in _DOMAINS:
            self._invalid("domain", " or ".join(_DOMAINS), self._domain)
        self.name = f"{name}({self._domain}, {version})"

    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        body = {
            "domain": self._domain,
            "task": "Summarization",  # The other task, QnA, also needs the question.
            "text": claim,
            "groundingSources": [evidence],
            "reasoning": False,
        }
        headers = {"Ocp-Apim-Subscription-Key": self._key()}
        return ServiceRequest(url=self._url, body=json.dumps(body).encode(), headers=headers)

    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        if not isinstance(answer, dict) or not isinstance(answer.get("ungroundedDetected"), bool):
            raise UnreadableAnswerError(f"{self.name}: expected true or false in ungroundedDetected")
        if not answer["ungroundedDetected"]:
            return ServiceAnswer(score=entailment(1.0))
        ungrounded = probability(answer.get("ungroundedPercentage"), f"{self.name}: ungroundedPercentage")
        # A claim is grounded only if all of it is, so P(entailed) must be below 0.5 if any part is reported as
        # ungrounded.
        return ServiceAnswer(score=entailment(min(0.49, 1.0 - ungrounded)))
