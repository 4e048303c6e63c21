"""The schema of the configuration file. Unknown keys and wrong types are rejected."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, StringConstraints, field_validator

from app.field_types import Line
from app.settings import NAME, Seconds, UpstreamApi, secret_name

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x1f\x7f]*")
_NOT_CONFIGURABLE = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "host", "content-length", "connection",
     "transfer-encoding", "accept-encoding"}
)  # fmt: skip


def _glob(pattern: str) -> str:
    if "[" in re.sub(r"\[!?\]?[^\]]*\]", "", pattern):
        raise ValueError(f"invalid glob {pattern!r}: unclosed '['")
    return pattern


def _header(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"invalid header name {name!r}")
    if name.lower() in _NOT_CONFIGURABLE:
        raise ValueError(f"the gateway sets {name!r}; to send a key, use api_key_env")
    return name.lower()


Glob = Annotated[Line, AfterValidator(_glob)]
HeaderName = Annotated[str, AfterValidator(_header)]
HeaderValue = Annotated[str, StringConstraints(pattern=rf"^{_HEADER_VALUE.pattern}$")]
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]


def _secret_name(reference: str) -> str:
    name = secret_name(reference)
    if name is None:
        raise ValueError('API keys are not allowed in this file: use a secret ("secret:NAME") or api_key_env')
    return name


SecretName = Annotated[str, AfterValidator(_secret_name)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TimeoutsTable(_Table):
    connect: Seconds = 10.0
    first_byte: Seconds = 600.0
    between_bytes: Seconds = 600.0


class UpstreamTable(_Table):
    name: Name
    base_url: HttpUrl
    api: Annotated[UpstreamApi, Field(strict=False)] = UpstreamApi.OPENAI
    api_version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]+$")] | None = None
    api_key_env: Line | None = None
    api_key: SecretName | None = None
    models: list[Glob] = ["*"]
    alias: dict[Glob, Line] = {}
    headers: dict[HeaderName, HeaderValue] = {}
    accepts_documents: bool = False
    timeouts: TimeoutsTable = TimeoutsTable()
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    retry_429: bool = False
    max_retry_after: Annotated[float, Field(ge=0, le=600)] = 10.0
    fallback: list[Name] = []
    max_connections: Annotated[int, Field(ge=1)] = 1_000
    proxy_from_env: bool = False

    @field_validator("base_url")
    @classmethod
    def _plain(cls, url: HttpUrl) -> HttpUrl:
        if url.username or url.password:
            raise ValueError("a username or password is not allowed; use api_key_env")
        if url.query or url.fragment:
            raise ValueError("a query string is not allowed; for Azure, use api_version")
        return url


class FileTables(_Table):
    upstreams: Annotated[list[UpstreamTable], Field(min_length=1)]
    policies: list[dict[str, Any]] = []
