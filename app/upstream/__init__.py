"""The upstreams: which one gets a request, how it is sent there, and what of headers crosses the gateway.

The API is httpx's; its transport is aiohttp's, which takes a fraction of the CPU of httpx's own.
"""

from app.upstream.decoding import decoded
from app.upstream.headers import Headers, returned_headers
from app.upstream.keys import KeySource
from app.upstream.outcome import translate
from app.upstream.request import Content, Form, UpstreamRequest
from app.upstream.upstreams import Sent, Upstreams

__all__ = [
    "Content",
    "Form",
    "Headers",
    "KeySource",
    "Sent",
    "UpstreamRequest",
    "Upstreams",
    "decoded",
    "returned_headers",
    "translate",
]
