"""The settings: environment variables with the prefix ``GROUNDLANE_``, or lines in an ``.env`` file."""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal

from dotenv import dotenv_values
from pydantic import AfterValidator, Field, HttpUrl, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class EventDurability(StrEnum):
    BATCHED = "batched"
    SYNC = "sync"


class StoreText(StrEnum):
    NONE = "none"
    HASH = "hash"
    FULL = "full"


class UpstreamApi(StrEnum):
    """The API of an upstream. It determines how the key is sent and, for Azure, the URLs."""

    OPENAI = "openai"
    AZURE = "azure"
    ANTHROPIC = "anthropic"


class SettingsError(ValueError):
    """A setting is invalid. The message is a single line that names the setting."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


_SHORTEST_TOKEN = 16


def _long_enough(token: SecretStr) -> SecretStr:
    if len(token.get_secret_value().strip()) < _SHORTEST_TOKEN:
        raise ValueError(f"a token needs at least {_SHORTEST_TOKEN} characters, for example: openssl rand -hex 32")
    return token


class Settings(BaseSettings):
    """The settings of a process. They are read once at startup and passed to the code that needs them. Later changes to
    the environment have no effect."""

    model_config = SettingsConfigDict(
        env_prefix="GROUNDLANE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    upstream_base_url: Annotated[HttpUrl, Field(description="Base URL of the upstream, including the version path")] = (
        HttpUrl("https://api.openai.com/v1")
    )
    upstream_api_key: Annotated[
        SecretStr | None,
        Field(
            description="API key of the upstream, or secret:NAME; unset: the caller's Authorization header is forwarded"
        ),
    ] = None
    upstream_api: Annotated[
        UpstreamApi, Field(description="How the key is sent: openai (bearer), azure (api-key) or anthropic (x-api-key)")
    ] = UpstreamApi.OPENAI
    upstream_retries: Annotated[
        int,
        Field(ge=0, le=10, description="Maximum number of retries after a lost connection or a 502, 503 or 504"),
    ] = 0
    passthrough: Annotated[
        str | None,
        Field(
            description="Comma-separated globs of other paths under /v1 that are forwarded unchecked; "
            "* for all; unset: only paths that generate no reply"
        ),
    ] = None
    config: Annotated[
        str | None,
        Field(description="TOML file with upstreams and policies; unset: only the upstream in the settings"),
    ] = None
    database_url: Annotated[str, Field(description="SQLAlchemy URL: sqlite+aiosqlite or postgresql+asyncpg")] = (
        "sqlite+aiosqlite:///./groundlane.db"
    )
    admin_token: Annotated[
        Annotated[SecretStr, AfterValidator(_long_enough)] | None,
        Field(
            description="Admin token; unset: a token is created at the first start, printed once and stored as a hash"
        ),
    ] = None
    dashboard: Annotated[bool, Field(description="Serve the dashboard under /dashboard")] = True
    session_idle_s: Annotated[Seconds, Field(description="Idle timeout of a dashboard session, in seconds")] = 7_200.0
    session_lifetime_s: Annotated[Seconds, Field(description="Maximum duration of a dashboard session, in seconds")] = (
        43_200.0
    )
    require_keys: Annotated[
        bool,
        Field(
            description="Require a gateway key; if false, other keys that callers send are forwarded to the upstream"
        ),
    ] = False
    public_url: Annotated[
        HttpUrl | None, Field(description="URL at which browsers reach the gateway, without a path")
    ] = None
    oidc_issuer: Annotated[
        str | None,
        Field(description="Issuer of the OpenID Connect provider for the dashboard; unset: sign-in with tokens only"),
    ] = None
    oidc_client_id: Annotated[str | None, Field(description="The gateway's client id at the provider")] = None
    oidc_client_secret: Annotated[SecretStr | None, Field(description="The gateway's client secret")] = None
    oidc_scopes: Annotated[str, Field(description="Scopes to request, separated by spaces")] = "openid email profile"
    oidc_role_claim: Annotated[str, Field(description="ID token claim that contains the user's groups")] = "groups"
    oidc_roles: Annotated[
        str | None,
        Field(
            description="Comma-separated group=role pairs, or *=role for everyone; the highest matching role applies; "
            "unset: no role"
        ),
    ] = None
    redis_url: Annotated[
        SecretStr | None,
        Field(description="URL of the Redis server for shared rate limits; unset: each worker counts separately"),
    ] = None
    secret_key: Annotated[
        SecretStr | None,
        Field(description="Comma-separated Fernet keys for stored secrets; the first key encrypts, all keys decrypt"),
    ] = None
    judge: Annotated[
        str,
        Field(
            description="Judge: embedded, embedded-large, preset:<name>, st:<model>, onnx:<path>, http:<url> or none"
        ),
    ] = "embedded"
    judge_api_key: Annotated[
        SecretStr | None, Field(description="API key for a remote judge, sent as a bearer token")
    ] = None
    vectara_api_key: Annotated[SecretStr | None, Field(description="API key for the judge preset:vectara")] = None
    azure_content_safety_api_key: Annotated[
        SecretStr | None,
        Field(description="API key of the Azure resource for the judge preset:azure-groundedness"),
    ] = None
    google_credentials: Annotated[
        SecretStr | None,
        Field(description="Service account key (JSON) or access token for the judge preset:vertex-check-grounding"),
    ] = None
    bedrock_api_key: Annotated[
        SecretStr | None,
        Field(description="Bedrock API key, or ID:SECRET of an access key, for the judge preset:bedrock-guardrail"),
    ] = None
    judge_preload: Annotated[bool, Field(description="Load the judge at startup instead of on first use")] = True
    judge_timeout_ms: Annotated[
        Count,
        Field(description="Time limit for judging one sentence; if it is exceeded, the verdict is unverifiable"),
    ] = 5_000
    conflicts_timeout_ms: Annotated[
        Count,
        Field(description="Maximum time that a request waits while its documents are compared with each other"),
    ] = 300
    judge_queue_limit: Annotated[
        Count, Field(description="Maximum number of claim-evidence pairs that wait for the judge")
    ] = 4_096
    judge_threads: Annotated[int, Field(ge=0, description="Threads per inference; 0: one per core")] = 0
    judge_cache_mb: Annotated[int, Field(ge=0, description="Size of the score cache, in MiB; 0: no cache")] = 32
    llm_judge_model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="LLM for claims that the judge leaves undecided; if there is no judge, for all claims; "
            "unset: none",
        ),
    ] = None
    llm_judge_timeout_ms: Annotated[Count, Field(description="Time limit for one call to the LLM judge")] = 10_000
    llm_judge_token_budget: Annotated[
        Annotated[int, Field(ge=500)],
        Field(description="Maximum number of text tokens per call to the LLM judge; longer input is split"),
    ] = 12_000
    llm_judge_concurrency: Annotated[
        Count, Field(description="Maximum number of concurrent calls to the LLM judge")
    ] = 16
    llm_judge_scoring: Annotated[
        Literal["unit", "binary_yes_no", "scale_1_5"],
        Field(description="Scale on which the LLM judge scores a reply: unit (0 to 1), binary_yes_no or scale_1_5"),
    ] = "unit"
    llm_judge_reasoning: Annotated[bool, Field(description="Include the LLM judge's reasoning with each score")] = True
    prices: Annotated[
        str | None,
        Field(description="TOML file with model prices, which take precedence over the list prices in the package"),
    ] = None
    caller_llm_checks: Annotated[
        bool,
        Field(description="Allow callers of /v1/grounding/check and /mcp to request an LLM judge in their options"),
    ] = False
    openai_api_key: Annotated[SecretStr | None, Field(description="API key for OpenAI models used as judges")] = None
    anthropic_api_key: Annotated[SecretStr | None, Field(description="API key for Anthropic models used as judges")] = (
        None
    )
    groq_api_key: Annotated[SecretStr | None, Field(description="API key for Groq models used as judges")] = None
    event_durability: Annotated[
        EventDurability,
        Field(
            description="When events are stored. batched: shortly after the reply; sync: committed before the "
            "last byte of the reply is sent"
        ),
    ] = EventDurability.BATCHED
    event_queue_limit: Annotated[Count, Field(description="Maximum number of events that wait for the database")] = (
        10_000
    )
    event_journal: Annotated[
        str | None,
        Field(description="File that stores events if the database is unavailable; unset: a file next to the database"),
    ] = None
    retention_days: Annotated[
        Count | None, Field(description="Delete requests and runs after this number of days; unset: keep them")
    ] = None
    annotate_by_default: Annotated[
        bool, Field(description="Judge and annotate replies that have documents but no grounding policy")
    ] = True
    share_max_hours: Annotated[
        int, Field(ge=0, le=8_760, description="Maximum lifetime of a link to a trace, in hours; 0: no links")
    ] = 168
    store_text: Annotated[
        StoreText,
        Field(description="How the event log stores prompts, documents and replies: none, hash or full"),
    ] = StoreText.HASH
    alert_private_addresses: Annotated[
        bool,
        Field(description="Allow alerts to private addresses and over plain HTTP, for services in your network"),
    ] = False
    policy_poll_s: Annotated[Seconds, Field(description="Interval at which a worker polls for changes, in seconds")] = (
        0.5
    )
    heartbeat_s: Annotated[
        Seconds, Field(description="Interval between the comments that keep a stream open while text is held")
    ] = 10.0
    send_timeout_s: Annotated[
        Seconds, Field(description="Time after which a client that accepts no data is disconnected")
    ] = 120.0
    connect_timeout_s: Annotated[Seconds, Field(description="Time limit for connecting to the upstream")] = 10.0
    read_timeout_s: Annotated[
        Seconds, Field(description="Maximum time without data from the upstream, including before the first byte")
    ] = 600.0
    max_reply_bytes: Annotated[Count, Field(description="Maximum size of a non-streamed reply after decompression")] = (
        64 * 1024 * 1024
    )
    max_reply_mb: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="Maximum text size of a reply under a policy, in millions of UTF-8 bytes",
        ),
    ] = 8.0
    upstream_connections: Annotated[
        Count, Field(description="Maximum number of concurrent connections to the upstream")
    ] = 1_000
    max_connections: Annotated[Count, Field(description="Maximum number of client connections per worker")] = 10_000
    max_connections_per_address: Annotated[
        Count, Field(description="Maximum number of client connections per worker from one address")
    ] = 2_000
    max_body_bytes: Annotated[Count, Field(description="Maximum size of a request body on a governed path")] = (
        16 * 1024 * 1024
    )
    max_documents: Annotated[Count, Field(description="Maximum number of documents in a request")] = 1_000
    max_document_chars: Annotated[Count, Field(description="Maximum length of a document, in characters")] = 1_000_000
    max_documents_chars: Annotated[
        Count, Field(description="Maximum total length of the documents in a request, in characters")
    ] = 4_000_000
    keep_fields: Annotated[
        str | None,
        Field(
            pattern=r"^\s*[\w-]+(\.[\w-]+)*(\s*,\s*[\w-]+(\.[\w-]+)*)*\s*$",
            description="Comma-separated dotted names of unknown fields that are kept in replies under a grounding "
            "policy, such as choices.delta.reasoning_details",
        ),
    ] = None
    evidence_from_tools: Annotated[bool, Field(description="Use the tool messages of a request as documents")] = False
    max_sentence_chars: Annotated[
        Annotated[int, Field(ge=200)],
        Field(description="Maximum length of a sentence; longer sentences are checked in parts"),
    ] = 4_000
    shutdown_grace_s: Annotated[
        Seconds, Field(description="Maximum time for which open streams continue at shutdown")
    ] = 30.0
    cors_origins: Annotated[
        str | None, Field(description="Comma-separated origins whose pages may call the gateway; * for any")
    ] = None
    mcp_hosts: Annotated[
        str | None,
        Field(
            description="Comma-separated host names that /mcp accepts; * for any; unset: only local names if the "
            "gateway listens on a loopback address, any name otherwise"
        ),
    ] = None
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$", description="Log level")] = "info"
    log_format: Annotated[
        str,
        Field(pattern="^(json|console)$", description="Log format. json: one object per line; console: readable lines"),
    ] = "json"


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The pattern for the names of upstreams and secrets."""


def secret_name(key: str) -> str | None:
    """Return NAME if ``key`` is ``secret:NAME``, a reference to a stored secret. Return None if it is the key
    itself."""
    found = re.fullmatch(f"secret:({NAME})", key)
    return None if found is None else found.group(1)


PREFIX = "GROUNDLANE_"

_NOT_SETTINGS = re.compile(
    # The Python client and the tests read these variables.
    r"BASE_URL|API_KEY|TEST_\w+"
    # Kubernetes sets these variables in every container if there is a service named "groundlane".
    r"|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?"
)


def unknown_settings(environment: Mapping[str, str], also_read: str = "") -> Mapping[str, str | None]:
    """Return the names in ``environment`` that look like settings but aren't, each mapped to the most similar setting,
    or to None. Names that occur in ``also_read``, the text of a configuration file, are left out."""
    known = {name.upper() for name in Settings.model_fields}
    found = {}
    for name in sorted(environment):
        own = name.upper().removeprefix(PREFIX)
        if name.upper().startswith(PREFIX) and own not in known and not _NOT_SETTINGS.fullmatch(own):
            nearest = get_close_matches(own, known, n=1)
            if not re.search(rf"\b{re.escape(name)}\b", also_read):
                found[name] = PREFIX + nearest[0] if nearest else None
    return found


def environment_variables() -> Mapping[str, str]:
    """Return the variables in the ``.env`` file and the environment. The environment takes precedence."""
    return {name: value for name, value in dotenv_values(".env").items() if value is not None} | dict(os.environ)


def load_settings() -> Settings:
    """Read the settings. Raises SettingsError, whose message names the first invalid setting."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
