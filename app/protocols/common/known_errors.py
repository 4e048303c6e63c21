"""Rebuilds the body of an upstream error from known fields, because any other field could contain unjudged text."""

from collections.abc import Mapping
from typing import Any

import orjson

from app.protocols.common.known_fields import UNFIT, Entry, KnownFields, code, identifier, text
from app.protocols.common.sse import load

_FIELDS: Entry = {"message": text, "type": identifier, "param": identifier, "code": code}


def known_error_body(body: bytes, status: int, api: str, fields: KnownFields) -> bytes:
    """Build the JSON body of an error in the format of ``api``, for a response with ``status`` and any body."""
    error = _error_in(load(body), fields)
    error = {"message": f"The upstream returned status {status}.", "type": "upstream_error", **error}
    return orjson.dumps({"type": "error", "error": error} if api == "messages" else {"error": error})


def _error_in(value: Any, fields: KnownFields) -> Mapping[str, Any]:
    found = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(found, str):
        return {"message": found} if isinstance(value, dict) else {}
    known = fields.rebuild(found, _FIELDS, "error") if isinstance(found, dict) else UNFIT
    return {} if known is UNFIT else {name: inner for name, inner in known.items() if name != "message" or inner}
