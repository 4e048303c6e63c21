"""Reads and writes policy files: TOML, as in the configuration file, or JSON."""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from app.config import parse_policies
from app.policy_admin.policy_document import PolicyDraft


class PolicyFileError(ValueError):
    """A policy file is invalid. The message is one line that names the key."""


def read_policies(text: str, *, json: bool) -> Sequence[PolicyDraft]:
    """Read policies from TOML with ``[[policies]]``, or from JSON. The JSON is a list of policies, or an object with a
    list under ``policies``.

    ``text`` may be a whole configuration file; ``[[upstreams]]`` are ignored. Raises PolicyFileError.
    """
    try:
        document: Any = orjson.loads(text) if json else tomllib.loads(text)
        return parse_policies(_policies(document))
    except (tomllib.TOMLDecodeError, orjson.JSONDecodeError) as error:
        raise PolicyFileError(f"not {'JSON' if json else 'TOML'}: {error}") from None
    except ValueError as error:
        raise PolicyFileError(str(error)) from None


def _policies(document: Any) -> Sequence[Any]:
    if isinstance(document, dict):
        unknown = sorted(document.keys() - {"policies", "upstreams"})
        if unknown:
            raise PolicyFileError(f"{unknown[0]}: unknown key")
        if "policies" not in document:
            raise PolicyFileError("policies: missing")
        document = document["policies"]
    if not isinstance(document, list):
        raise PolicyFileError("policies: expected a list")
    return document


def policy_file(drafts: Sequence[PolicyDraft]) -> str:
    """Serialize ``drafts`` as JSON that ``read_policies`` accepts."""
    return orjson.dumps({"policies": [asdict(draft) for draft in drafts]}, option=orjson.OPT_INDENT_2).decode()
