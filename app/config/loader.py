"""Reads and validates the configuration file. Every error message is one line that names the invalid key."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from app.config.file_schema import FileTables, UpstreamTable
from app.config.models import Config, Timeouts, UpstreamSpec
from app.errors import InvalidAdminRequestError
from app.policy_admin.policy_document import PolicyDraft, parse_document
from app.settings import Settings, SettingsError, UpstreamApi, environment_variables, secret_name

_SETTING = "GROUNDLANE_CONFIG"


class _ConfigKeyError(ValueError):
    """A key in the file is invalid. The message names the key."""


def load_config(settings: Settings) -> Config:
    """Read the configuration file named in the settings, if any. Raises SettingsError with one line that names the
    invalid key."""
    if settings.config is None:
        config = Config(upstreams=(_from_settings(settings),))
    else:
        # The .env file may contain API keys as well as settings.
        config = read_config(Path(settings.config), environment_variables())
    named = [upstream.secret for upstream in config.upstreams if upstream.secret is not None]
    if named and settings.secret_key is None:
        raise SettingsError(f"GROUNDLANE_SECRET_KEY: not set, but an upstream uses the secret {named[0]!r}")
    return config


def read_config(path: Path, environment: Mapping[str, str]) -> Config:
    """Read a configuration file. ``environment`` holds the API keys under the names used in the file. Raises
    SettingsError."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{_SETTING}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{_SETTING}: {path}: not a UTF-8 text file") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{_SETTING}: {path}: {error}") from None
    try:
        tables = FileTables.model_validate(document)
        upstreams = tuple(
            _spec(table, f"upstreams[{index}]", environment) for index, table in enumerate(tables.upstreams)
        )
        _check_names(upstreams)
        _check_fallbacks(upstreams)
        return Config(upstreams=upstreams, policies=parse_policies(tables.policies))
    except ValidationError as error:
        raise SettingsError(f"{_SETTING}: {path}: {_first(error)}") from None
    except _ConfigKeyError as error:
        raise SettingsError(f"{_SETTING}: {path}: {error}") from None


def _spec(table: UpstreamTable, where: str, environment: Mapping[str, str]) -> UpstreamSpec:
    key = None
    if table.api_key_env is not None:
        value = environment.get(table.api_key_env, "").strip()
        if not value:
            raise _ConfigKeyError(f"{where}.api_key_env: the environment variable {table.api_key_env} is not set")
        key = SecretStr(value)
        if table.api_key is not None:
            raise _ConfigKeyError(f"{where}.api_key: cannot be combined with api_key_env")
    base_url = str(table.base_url).rstrip("/")
    if table.api is UpstreamApi.AZURE and table.api_version is None and not base_url.endswith("/openai/v1"):
        raise _ConfigKeyError(f"{where}.api_version: required unless base_url ends in /openai/v1")
    if table.api is not UpstreamApi.AZURE and table.api_version is not None:
        raise _ConfigKeyError(f'{where}.api_version: only for api = "azure"')
    values = {name: getattr(table, name) for name in _SAME}
    timeouts = Timeouts(**table.timeouts.model_dump())
    return UpstreamSpec(base_url=base_url, key=key, secret=table.api_key, timeouts=timeouts, **values)


_SAME = (
    "name", "api", "api_version", "models", "alias", "headers", "accepts_documents", "retries", "retry_429",
    "max_retry_after", "fallback", "max_connections", "proxy_from_env",
)  # fmt: skip


def _from_settings(settings: Settings) -> UpstreamSpec:
    base_url = str(settings.upstream_base_url).rstrip("/")
    if settings.upstream_api is UpstreamApi.AZURE and not base_url.endswith("/openai/v1"):
        raise SettingsError(
            f"GROUNDLANE_UPSTREAM_API: azure requires a base URL ending in /openai/v1; for older APIs, use {_SETTING}"
        )
    key = settings.upstream_api_key
    secret = None if key is None else secret_name(key.get_secret_value())
    return UpstreamSpec(
        name="default",
        base_url=base_url,
        api=settings.upstream_api,
        key=key if secret is None else None,
        secret=secret,
        timeouts=Timeouts(
            connect=settings.connect_timeout_s,
            first_byte=settings.read_timeout_s,
            between_bytes=settings.read_timeout_s,
        ),
        retries=settings.upstream_retries,
        max_connections=settings.upstream_connections,
    )


def _check_names(upstreams: Sequence[UpstreamSpec]) -> None:
    seen: set[str] = set()
    for index, upstream in enumerate(upstreams):
        if upstream.name in seen:
            raise _ConfigKeyError(f"upstreams[{index}].name: duplicate name {upstream.name!r}")
        seen.add(upstream.name)


def _check_fallbacks(upstreams: Sequence[UpstreamSpec]) -> None:
    by_name = {upstream.name: upstream for upstream in upstreams}
    for index, upstream in enumerate(upstreams):
        for name in upstream.fallback:
            if name not in by_name:
                raise _ConfigKeyError(f"upstreams[{index}].fallback: unknown upstream {name!r}")
    for index, upstream in enumerate(upstreams):
        if (path := _cycle_from(upstream.name, upstream.name, by_name, frozenset())) is not None:
            raise _ConfigKeyError(f"upstreams[{index}].fallback: circular: {' > '.join((upstream.name, *path))}")


def _cycle_from(
    start: str, at: str, by_name: Mapping[str, UpstreamSpec], seen: frozenset[str]
) -> tuple[str, ...] | None:
    for name in by_name[at].fallback:
        if name == start:
            return (name,)
        if name not in seen and (path := _cycle_from(start, name, by_name, seen | {name})) is not None:
            return (name, *path)
    return None


def parse_policies(tables: Sequence[Any]) -> tuple[PolicyDraft, ...]:
    """Validate the policies in a file. Raises ValueError with one line that names the invalid key."""
    drafts: list[PolicyDraft] = []
    for index, table in enumerate(tables):
        try:
            draft = parse_document(table)
        except InvalidAdminRequestError as error:
            raise _ConfigKeyError(f"policies[{index}].{error.message}") from None
        if any(draft.name == other.name for other in drafts):
            raise _ConfigKeyError(f"policies[{index}].name: duplicate name {draft.name!r}")
        drafts.append(draft)
    return tuple(drafts)


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    match first["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key"
        case "missing":
            return f"{where}: missing"
        case "value_error":
            return f"{where.removesuffix('.[key]')}: {first['ctx']['error']}"
    return f"{where}: {first['msg']}"
