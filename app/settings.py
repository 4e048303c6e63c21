"""Every knob of the gateway: environment variables with the prefix ``GROUNDLANE_``, or an ``.env`` file."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, HttpUrl, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class EventDurability(StrEnum):
    BATCHED = "batched"
    SYNC = "sync"


class StoreText(StrEnum):
    NONE = "none"
    HASH = "hash"
    FULL = "full"


class UpstreamApi(StrEnum):
    """What an upstream speaks: it decides how the key is sent and, for Azure, what URLs look like."""

    OPENAI = "openai"
    AZURE = "azure"
    ANTHROPIC = "anthropic"


class SettingsError(ValueError):
    """A setting has a bad value; the message is one line that names it."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """Read once at start and passed down; nothing reads the environment later."""

    model_config = SettingsConfigDict(
        env_prefix="GROUNDLANE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    upstream_base_url: Annotated[HttpUrl, Field(description="Base URL of the upstream, with its version path")] = (
        HttpUrl("https://api.openai.com/v1")
    )
    upstream_api_key: Annotated[
        SecretStr | None,
        Field(description="Key sent upstream, or secret:NAME; unset: the caller's Authorization is passed on"),
    ] = None
    upstream_api: Annotated[
        UpstreamApi, Field(description="How the key is sent: openai (bearer), azure (api-key) or anthropic (x-api-key)")
    ] = UpstreamApi.OPENAI
    upstream_retries: Annotated[
        int,
        Field(
            ge=0, le=10, description="How often a request is sent again after a lost connection or a 502, 503 or 504"
        ),
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
        Field(description="TOML file with several upstreams and with policies; unset: the one upstream above"),
    ] = None
    database_url: Annotated[str, Field(description="SQLAlchemy URL: sqlite+aiosqlite or postgresql+asyncpg")] = (
        "sqlite+aiosqlite:///./groundlane.db"
    )
    admin_token: Annotated[
        SecretStr | None,
        Field(description="Token of the admin API; unset: one is made at first start, printed once, kept as a hash"),
    ] = None
    dashboard: Annotated[bool, Field(description="Serve the dashboard under /dashboard")] = True
    require_keys: Annotated[
        bool, Field(description="Refuse calls without a gateway key; otherwise other keys are the upstream's matter")
    ] = False
    redis_url: Annotated[
        SecretStr | None,
        Field(description="Redis in which all workers and machines count rate limits; unset: each worker for itself"),
    ] = None
    secret_key: Annotated[
        SecretStr | None,
        Field(description="Fernet keys, separated by commas, that open the stored secrets; the first encrypts"),
    ] = None
    judge: Annotated[str, Field(description="embedded, st:<model>, onnx:<folder>, http:<url> or none")] = "embedded"
    judge_api_key: Annotated[
        SecretStr | None, Field(description="Key sent to a judge that is served elsewhere, as a bearer token")
    ] = None
    judge_preload: Annotated[bool, Field(description="Load the judge at start rather than on first use")] = True
    judge_timeout_ms: Annotated[
        Count,
        Field(description="Deadline of the judge for one sentence; over it the sentence is unverifiable"),
    ] = 5_000
    conflicts_timeout_ms: Annotated[
        Count,
        Field(description="How long a request waits, at most, for its documents to be held against each other"),
    ] = 300
    judge_queue_limit: Annotated[Count, Field(description="Most pairs that may wait for the judge")] = 4_096
    judge_threads: Annotated[int, Field(ge=0, description="Threads of one inference; 0: one per core")] = 0
    judge_cache_mb: Annotated[int, Field(ge=0, description="Memory of the verdict cache in MiB; 0: no cache")] = 32
    llm_judge_model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="LLM that judges the claims that the judge leaves open (or all, with none); unset: no LLM does",
        ),
    ] = None
    llm_judge_timeout_ms: Annotated[Count, Field(description="Deadline of one call to an LLM judge")] = 10_000
    llm_judge_token_budget: Annotated[
        Annotated[int, Field(ge=500)],
        Field(description="Most tokens of text in one call to an LLM judge; what does not fit takes several calls"),
    ] = 12_000
    llm_judge_concurrency: Annotated[Count, Field(description="Most calls to LLM judges at once")] = 16
    llm_judge_scoring: Annotated[
        Literal["unit", "binary_yes_no", "scale_1_5"],
        Field(description="Scale on which an LLM judge scores a reply: unit (0 to 1), binary_yes_no or scale_1_5"),
    ] = "unit"
    llm_judge_reasoning: Annotated[bool, Field(description="A score comes with the LLM judge's reasoning")] = True
    llm_judge_prices: Annotated[
        str | None, Field(description="TOML file with prices that go before those in the package")
    ] = None
    openai_api_key: Annotated[SecretStr | None, Field(description="Key of the LLM judge for OpenAI's models")] = None
    anthropic_api_key: Annotated[SecretStr | None, Field(description="Key of the LLM judge for Anthropic's models")] = (
        None
    )
    groq_api_key: Annotated[SecretStr | None, Field(description="Key of the LLM judge for models at Groq")] = None
    event_durability: Annotated[
        EventDurability,
        Field(description="batched, or sync: committed before the last byte of the reply leaves"),
    ] = EventDurability.BATCHED
    event_queue_limit: Annotated[Count, Field(description="Most events that may wait for the database")] = 10_000
    event_journal: Annotated[
        str | None,
        Field(description="File that events go to while the database is away; default beside the database"),
    ] = None
    retention_days: Annotated[
        Count | None, Field(description="Delete requests and runs this old, once an hour; unset: keep them")
    ] = None
    annotate_by_default: Annotated[
        bool, Field(description="Judge and annotate replies that have documents but no grounding policy")
    ] = True
    store_text: Annotated[
        StoreText,
        Field(description="What the event log keeps of prompts, documents and replies: none, hash or full"),
    ] = StoreText.HASH
    policy_poll_s: Annotated[Seconds, Field(description="How often a worker looks for changes")] = 0.5
    heartbeat_s: Annotated[Seconds, Field(description="Pause after which a comment line goes out on a held stream")] = (
        10.0
    )
    send_timeout_s: Annotated[Seconds, Field(description="A client that takes no byte for this long is dropped")] = (
        120.0
    )
    connect_timeout_s: Annotated[Seconds, Field(description="Time to connect to the upstream")] = 10.0
    read_timeout_s: Annotated[Seconds, Field(description="Longest silence of the upstream, first byte included")] = (
        600.0
    )
    max_reply_bytes: Annotated[Count, Field(description="Largest reply that is not streamed, unpacked")] = (
        64 * 1024 * 1024
    )
    upstream_connections: Annotated[Count, Field(description="Most connections to the upstream")] = 1_000
    max_body_bytes: Annotated[Count, Field(description="Largest request body of a governed path")] = 16 * 1024 * 1024
    max_documents: Annotated[Count, Field(description="Most documents in one request")] = 1_000
    max_document_chars: Annotated[Count, Field(description="Longest text of a document")] = 1_000_000
    max_documents_chars: Annotated[Count, Field(description="Most text of all documents of a request")] = 4_000_000
    keep_fields: Annotated[
        str | None,
        Field(
            pattern=r"^\s*[\w-]+(\.[\w-]+)*(\s*,\s*[\w-]+(\.[\w-]+)*)*\s*$",
            description="Unknown fields of replies that pass under a grounding policy, such as "
            "choices.delta.reasoning_details; dotted names, separated by commas",
        ),
    ] = None
    evidence_from_tools: Annotated[
        bool, Field(description="What the tool messages of a request say counts among its documents")
    ] = False
    max_sentence_chars: Annotated[
        Annotated[int, Field(ge=200)], Field(description="A sentence longer than this is checked in parts")
    ] = 4_000
    shutdown_grace_s: Annotated[Seconds, Field(description="Time that open streams have to end at shutdown")] = 30.0
    cors_origins: Annotated[
        str | None, Field(description="Origins, separated by commas, whose pages may call the gateway; * for any")
    ] = None
    mcp_hosts: Annotated[
        str | None,
        Field(
            description="Host names, separated by commas, by which /mcp may be called; * for any; "
            "unset: local ones over a loopback address, any over another"
        ),
    ] = None
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$", description="Log level")] = "info"
    log_format: Annotated[str, Field(pattern="^(json|console)$", description="Log lines as JSON or for people")] = (
        "json"
    )


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What an upstream or a secret may be called."""


def secret_name(key: str) -> str | None:
    """The name in ``secret:NAME``, which stands for a key that is kept as a secret; None for a key itself."""
    found = re.fullmatch(f"secret:({NAME})", key)
    return None if found is None else found.group(1)


def load_settings() -> Settings:
    """Read the settings. Raises SettingsError with one line that names the first bad one."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "GROUNDLANE_" + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name}: {first['msg']}") from None
