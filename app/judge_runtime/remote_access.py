"""Derives the keys, time limits and prices of remote judges from the settings."""

from collections.abc import Callable, Mapping

from pydantic import SecretStr

from app.analytics.configured_prices import open_prices
from app.settings import Settings
from judges.cross_encoder import ServiceAccess
from judges.llm import LlmKeySource
from judges.llm_types import LlmCall


def judge_access(
    settings: Settings,
    secrets: LlmKeySource | None = None,
    observe: Callable[[LlmCall], None] = lambda _call: None,
    timeout_s: float | None = None,
) -> ServiceAccess:
    """Build the access data for remote judges: their keys, time limit and prices. A key comes from its setting or, if
    the setting is empty, from the secret with the same name.

    ``secrets`` contains the secrets from the gateway's database, if it is open. ``observe`` is called with every
    request to a service. ``timeout_s`` replaces the time limit in the settings, which is meant for interactive replies.
    Raises SettingsError for an invalid price file.
    """
    own: Mapping[str, SecretStr | None] = {
        "judge": settings.judge_api_key,
        "vectara": settings.vectara_api_key,
        "azure-content-safety": settings.azure_content_safety_api_key,
        "google": settings.google_credentials,
        "bedrock": settings.bedrock_api_key,
    }

    def key(name: str) -> str | None:
        if (value := own.get(name)) is not None:
            return value.get_secret_value()
        return None if secrets is None else secrets.key(name)

    return ServiceAccess(
        keys=key,
        timeout_s=settings.judge_timeout_ms / 1e3 if timeout_s is None else timeout_s,
        cost=open_prices(settings).cost,
        observe=observe,
    )
