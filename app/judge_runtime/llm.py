"""Builds the LLM judge of a process from the settings, and the check in which it scores whole replies."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.analytics.configured_prices import open_prices
from app.config import UpstreamSpec
from app.reply.checks.final_checks import FinalCheck, WholeReply
from app.settings import Settings, UpstreamApi
from judges.llm import PROVIDERS, Endpoint, LlmJudge, LlmKeySource, LlmScoringMode
from judges.llm.llm_client import Observe

_AZURE_V1 = "/openai/v1"


class LlmKeys:
    """API keys for the LLM judge. The key for an endpoint comes from the first of these sources that exists: the
    provider's setting, the secret with the name of the endpoint, the upstream with that name, or an upstream on the
    same host."""

    def __init__(self, settings: Settings, upstreams: Sequence[UpstreamSpec], secrets: LlmKeySource) -> None:
        self._secrets = secrets
        self._own: Mapping[str, SecretStr | None] = {
            "openai": settings.openai_api_key,
            "anthropic": settings.anthropic_api_key,
            "groq": settings.groq_api_key,
        }
        self._upstreams = {name: [s for s in upstreams if _serves(s, name)] for name in PROVIDERS}
        self._upstreams |= {spec.name: [spec] for spec in upstreams}

    def key(self, name: str) -> str | None:
        """Return the key for the endpoint ``name``, or None."""
        own = self._own.get(name)
        if own is not None:
            return own.get_secret_value()
        if (secret := self._secrets.key(name)) is not None:
            return secret
        keys = (self._key_of(spec) for spec in self._upstreams.get(name, ()))
        return next((key for key in keys if key is not None), None)

    def _key_of(self, spec: UpstreamSpec) -> str | None:
        if spec.secret is not None:
            return self._secrets.key(spec.secret)
        return spec.key.get_secret_value() if spec.key is not None else None


def open_llm_judge(
    settings: Settings, upstreams: Sequence[UpstreamSpec], secrets: LlmKeySource, observe: Observe
) -> LlmJudge:
    """Build the LLM judge from ``settings``. No LLM is called and no library is imported yet. A model that an upstream
    serves is named as ``upstream/model``. ``observe`` is called with every LLM call. Raises SettingsError for an
    invalid price file."""
    return LlmJudge(
        keys=LlmKeys(settings, upstreams, secrets),
        model=settings.llm_judge_model,
        endpoints={**PROVIDERS, **{spec.name: _endpoint(spec) for spec in upstreams}},
        prices=open_prices(settings),
        timeout_s=settings.llm_judge_timeout_ms / 1e3,
        token_budget=settings.llm_judge_token_budget,
        concurrency=settings.llm_judge_concurrency,
        scoring_mode=LlmScoringMode(settings.llm_judge_scoring),
        include_reasoning=settings.llm_judge_reasoning,
        observe=observe,
    )


def llm_scores(judge: LlmJudge) -> FinalCheck:
    """Build the check that asks ``judge`` to score a whole reply, if policies require a score."""

    async def ask(reply: WholeReply) -> Mapping[str, Any]:
        requests = reply.settings.score_requests
        if not requests or not reply.chunks or not reply.text.strip():
            return {}
        scores = await asyncio.gather(*(judge.score(request, reply.text, reply.chunks) for request in requests))
        return {"llm_scores": tuple(scores)}

    return ask


def _endpoint(spec: UpstreamSpec) -> Endpoint:
    known = any(_serves(spec, name) for name in PROVIDERS)
    return Endpoint(
        name=spec.name,
        base_url=spec.base_url,
        api_version=None if spec.base_url.endswith(_AZURE_V1) else spec.api_version,
        # A self-hosted server may need no key. The key that a caller sends is never used here, because it is only for
        # that caller's requests.
        needs_key=known or spec.secret is not None or spec.api is not UpstreamApi.OPENAI,
        headers=spec.headers,
    )


def _serves(spec: UpstreamSpec, provider: str) -> bool:
    return urlsplit(spec.base_url).hostname == urlsplit(PROVIDERS[provider].base_url).hostname
