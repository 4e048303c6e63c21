"""Builds a curl command that sends a request with a document to this gateway, for people who are setting up a
client."""

import json
from shlex import quote

from fastapi import Request

_KEY = "$GROUNDLANE_KEY"
_AGENT = "my-agent"
_BODY = {
    "model": "gpt-4o-mini",
    "messages": [{"role": "user", "content": "How long do refunds take?"}],
    "documents": [{"id": "terms", "text": "Refunds take five days."}],
}


def curl_example(request: Request, *, key: str = "", agent: str = "") -> str:
    """Return a curl command for the gateway that serves this page. Without ``key``, the command reads the key from a
    shell variable."""
    authorization = quote(f"Authorization: Bearer {key}") if key else f'"Authorization: Bearer {_KEY}"'
    lines = (
        f"curl {quote(f'{request.base_url}v1/chat/completions')}",
        f"-H {authorization}",
        f"-H {quote(f'X-Groundlane-Agent: {agent or _AGENT}')}",
        "-H 'Content-Type: application/json'",
        f"-d {quote(json.dumps(_BODY))}",
    )
    return " \\\n  ".join(lines)
