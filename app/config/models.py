"""The validated configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import SecretStr

from app.policy_admin.policy_document import PolicyDraft
from app.settings import UpstreamApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds. ``first_byte`` is the maximum time from the request to the first byte of the reply.
    ``between_bytes`` is the maximum pause after that."""

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
    """One upstream, validated. ``models`` and the keys of ``alias`` are shell globs."""

    name: str
    base_url: str
    api: UpstreamApi = UpstreamApi.OPENAI
    api_version: str | None = None
    key: SecretStr | None = None
    secret: str | None = None
    """The name of the secret that holds the API key, as an alternative to ``key``."""
    models: Sequence[str] = ("*",)
    alias: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    accepts_documents: bool = False
    timeouts: Timeouts = Timeouts()
    retries: int = 0
    retry_429: bool = False
    max_retry_after: float = 10.0
    fallback: Sequence[str] = ()
    max_connections: int = 1_000
    proxy_from_env: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration: at least one upstream, and policies to apply at startup."""

    upstreams: Sequence[UpstreamSpec]
    policies: Sequence[PolicyDraft] = ()
