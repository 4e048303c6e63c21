"""The settings: environment variables with the prefix ``GROUNDLANE_``, or lines of an ``.env`` file."""

import re
from enum import StrEnum
from typing import Annotated, Literal

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
    """The kind of an upstream, which determines how the key is sent and, for Azure, the URLs."""

    OPENAI = "openai"
    AZURE = "azure"
    ANTHROPIC = "anthropic"


class SettingsError(ValueError):
    """A setting is invalid; the message is one line that names it."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


_SHORTEST_TOKEN = 16


def _long_enough(token: SecretStr) -> SecretStr:
    if len(token.get_secret_value().strip()) < _SHORTEST_TOKEN:
        raise ValueError(f"a token needs at least {_SHORTEST_TOKEN} characters, for example: openssl rand -hex 32")
    return token


class Settings(BaseSettings):
    """Read once at startup and passed to whatever needs them; nothing reads the environment later."""

    model_config = SettingsConfigDict(
        env_prefix="GROUNDLANE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    upstream_base_url: Annotated[HttpUrl, Field(description="Base URL of the upstream, including the version path")] = (
        HttpUrl("https://api.openai.com/v1")
    )
    upstream_api_key: Annotated[
        SecretStr | None,
        Field(description="API key of the upstream, or secret:NAME; unset: the caller's Authorization is forwarded"),
    ] = None
    upstream_api: Annotated[
        UpstreamApi, Field(description="How the key is sent: openai (bearer), azure (api-key) or anthropic (x-api-key)")
    ] = UpstreamApi.OPENAI
    upstream_retries: Annotated[
        int,
        Field(ge=0, le=10, description="How often a request is retried after a lost connection or a 502, 503 or 504"),
    ] = 0
    passthrough: Annotated[
        str | None,
        Field(
            description="Further paths under /v1 that are forwarded unchecked: globs, separated by commas; "
            "* for all; unset: only paths that write no reply"
        ),
    ] = None
    config: Annotated[
        str | None,
        Field(description="TOML file with upstreams and policies; unset: the one upstream above"),
    ] = None
    database_url: Annotated[str, Field(description="SQLAlchemy URL: sqlite+aiosqlite or postgresql+asyncpg")] = (
        "sqlite+aiosqlite:///./groundlane.db"
    )
    admin_token: Annotated[
        Annotated[SecretStr, AfterValidator(_long_enough)] | None,
        Field(description="Admin token; unset: one is created at the first start, printed once and stored as a hash"),
    ] = None
    dashboard: Annotated[bool, Field(description="Serve the dashboard under /dashboard")] = True
    require_keys: Annotated[
        bool, Field(description="Reject calls without a gateway key; if off, other keys are forwarded to the upstream")
    ] = False
    redis_url: Annotated[
        SecretStr | None,
        Field(description="Redis through which workers share rate limits; unset: each worker counts separately"),
    ] = None
    secret_key: Annotated[
        SecretStr | None,
        Field(description="Fernet keys, separated by commas, for the stored secrets: the first encrypts, all decrypt"),
    ] = None
    judge: Annotated[str, Field(description="embedded, st:<model>, onnx:<folder>, http:<url> or none")] = "embedded"
    judge_api_key: Annotated[SecretStr | None, Field(description="Key for a remote judge, sent as a bearer token")] = (
        None
    )
    judge_preload: Annotated[bool, Field(description="Load the judge at startup, not on first use")] = True
    judge_timeout_ms: Annotated[
        Count,
        Field(description="Time limit for judging one sentence; when exceeded, the sentence is unverifiable"),
    ] = 5_000
    conflicts_timeout_ms: Annotated[
        Count,
        Field(description="How long a request waits at most while its documents are compared with each other"),
    ] = 300
    judge_queue_limit: Annotated[
        Count, Field(description="Maximum number of claim-evidence pairs that wait for the judge")
    ] = 4_096
    judge_threads: Annotated[int, Field(ge=0, description="Threads per inference; 0: one per core")] = 0
    judge_cache_mb: Annotated[int, Field(ge=0, description="Memory of the score cache in MiB; 0: no cache")] = 32
    llm_judge_model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="LLM for claims that the judge leaves undecided, or for all without a judge; unset: no LLM",
        ),
    ] = None
    llm_judge_timeout_ms: Annotated[Count, Field(description="Time limit for one call to the LLM judge")] = 10_000
    llm_judge_token_budget: Annotated[
        Annotated[int, Field(ge=500)],
        Field(description="Maximum text tokens in one call to the LLM judge; longer input takes several calls"),
    ] = 12_000
    llm_judge_concurrency: Annotated[
        Count, Field(description="Maximum number of concurrent calls to the LLM judge")
    ] = 16
    llm_judge_scoring: Annotated[
        Literal["unit", "binary_yes_no", "scale_1_5"],
        Field(description="Scale on which the LLM judge scores a reply: unit (0 to 1), binary_yes_no or scale_1_5"),
    ] = "unit"
    llm_judge_reasoning: Annotated[bool, Field(description="Include the LLM judge's reasoning with a score")] = True
    llm_judge_prices: Annotated[
        str | None, Field(description="TOML file with prices that take precedence over those in the package")
    ] = None
    caller_llm_checks: Annotated[
        bool,
        Field(description="Let callers of /v1/grounding/check and /mcp ask for an LLM judge in their options"),
    ] = False
    openai_api_key: Annotated[SecretStr | None, Field(description="Key for OpenAI models as judges")] = None
    anthropic_api_key: Annotated[SecretStr | None, Field(description="Key for Anthropic models as judges")] = None
    groq_api_key: Annotated[SecretStr | None, Field(description="Key for models at Groq as judges")] = None
    event_durability: Annotated[
        EventDurability,
        Field(
            description="batched: written shortly afterwards; sync: committed before the last byte of the reply is sent"
        ),
    ] = EventDurability.BATCHED
    event_queue_limit: Annotated[Count, Field(description="Maximum number of events that wait for the database")] = (
        10_000
    )
    event_journal: Annotated[
        str | None,
        Field(description="File for events while the database is unavailable; unset: next to the database"),
    ] = None
    retention_days: Annotated[
        Count | None, Field(description="Delete requests and runs after this many days; unset: keep them")
    ] = None
    annotate_by_default: Annotated[
        bool, Field(description="Judge and annotate replies that have documents but no grounding policy")
    ] = True
    store_text: Annotated[
        StoreText,
        Field(description="How the event log stores prompts, documents and replies: none, hash or full"),
    ] = StoreText.HASH
    policy_poll_s: Annotated[Seconds, Field(description="How often a worker polls for changes, in seconds")] = 0.5
    heartbeat_s: Annotated[Seconds, Field(description="Interval of comment lines while text is held")] = 10.0
    send_timeout_s: Annotated[
        Seconds, Field(description="A client that accepts no data for this long is disconnected")
    ] = 120.0
    connect_timeout_s: Annotated[Seconds, Field(description="Time limit for connecting to the upstream")] = 10.0
    read_timeout_s: Annotated[
        Seconds, Field(description="Longest silence of the upstream, including the time to the first byte")
    ] = 600.0
    max_reply_bytes: Annotated[Count, Field(description="Maximum size of a non-streamed reply, decompressed")] = (
        64 * 1024 * 1024
    )
    max_reply_mb: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="Maximum text of a reply under a policy, in million characters",
        ),
    ] = 8.0
    upstream_connections: Annotated[
        Count, Field(description="Maximum number of concurrent connections to the upstream")
    ] = 1_000
    max_connections: Annotated[Count, Field(description="Most connections of clients to a worker")] = 10_000
    max_connections_per_address: Annotated[
        Count, Field(description="Most connections of clients to a worker from one address")
    ] = 2_000
    max_body_bytes: Annotated[Count, Field(description="Maximum size of a body on a governed path")] = 16 * 1024 * 1024
    max_documents: Annotated[Count, Field(description="Maximum number of documents in a request")] = 1_000
    max_document_chars: Annotated[Count, Field(description="Maximum length of a document, in characters")] = 1_000_000
    max_documents_chars: Annotated[
        Count, Field(description="Maximum length of all documents of a request together")
    ] = 4_000_000
    keep_fields: Annotated[
        str | None,
        Field(
            pattern=r"^\s*[\w-]+(\.[\w-]+)*(\s*,\s*[\w-]+(\.[\w-]+)*)*\s*$",
            description="Unknown fields that are kept in replies under a grounding policy, such as "
            "choices.delta.reasoning_details; dotted names, separated by commas",
        ),
    ] = None
    evidence_from_tools: Annotated[bool, Field(description="Use the tool messages of a request as documents")] = False
    max_sentence_chars: Annotated[
        Annotated[int, Field(ge=200)], Field(description="A sentence longer than this is checked in parts")
    ] = 4_000
    shutdown_grace_s: Annotated[Seconds, Field(description="How long open streams may continue at shutdown")] = 30.0
    cors_origins: Annotated[
        str | None, Field(description="Origins, separated by commas, whose pages may call the gateway; * for any")
    ] = None
    mcp_hosts: Annotated[
        str | None,
        Field(
            description="Host names, separated by commas, that /mcp accepts; * for any; "
            "unset: local names on a loopback address, any on others"
        ),
    ] = None
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$", description="Log level")] = "info"
    log_format: Annotated[
        str, Field(pattern="^(json|console)$", description="json: one object per line; console: readable lines")
    ] = "json"


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""The names that upstreams and secrets may have."""


def secret_name(key: str) -> str | None:
    """The name in ``secret:NAME``, which refers to a stored secret; None for a key."""
    found = re.fullmatch(f"secret:({NAME})", key)
    return None if found is None else found.group(1)


def load_settings() -> Settings:
    """Read the settings. Raises SettingsError with one line that names the first invalid one."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "GROUNDLANE_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
