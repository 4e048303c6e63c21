"""What a configuration is once it is checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import SecretStr

from app.policy_admin.policy_document import PolicyDraft
from app.settings import UpstreamApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds. ``first_byte``: from the request to the reply's first byte; ``between_bytes``: silence after it."""

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
    """One upstream, checked. ``models`` and the keys of ``alias`` are shell globs."""

    name: str
    base_url: str
    api: UpstreamApi = UpstreamApi.OPENAI
    api_version: str | None = None
    key: SecretStr | None = None
    secret: str | None = None
    """The name of the secret that holds the key, in place of ``key``."""
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
    """What the process is made of beside its settings: at least one upstream, and policies to put in force."""

    upstreams: Sequence[UpstreamSpec]
    policies: Sequence[PolicyDraft] = ()
