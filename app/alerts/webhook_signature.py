"""Signs webhook messages, so that the receiver can verify that they come from this gateway."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime


def signature_headers(key: str | None, body: bytes) -> Mapping[str, str]:
    """Sign the time and the body, so that the receiver can detect a replay. Without a key, return no headers."""
    if key is None:
        return {}
    time = str(int(datetime.now(UTC).timestamp()))
    signed = hmac.new(key.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Groundlane-Signature": f"t={time},v1={signed}"}
