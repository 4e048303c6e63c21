"""Signs requests to AWS with Signature Version 4.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """An access key. ``session_token`` is set for temporary credentials."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def signed_headers(
    credentials: AwsCredentials,
    *,
    method: str,
    url: str,
    body: bytes,
    region: str,
    service: str,
    now: datetime,
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return ``headers`` with the date and the signature. ``url`` must be exactly the URL that is sent, with a
    percent-encoded path and no query. ``now`` is in UTC."""
    parts = urlsplit(url)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    sent = {**(headers or {}), "host": parts.netloc, "x-amz-date": stamp}
    if credentials.session_token:
        sent["x-amz-security-token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [
            method,
            quote(parts.path or "/", safe="/-_.~"),  # encoded twice, as every service except S3 expects
            "",
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{credentials.access_key_id}/{scope}"
    sent["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return sent
