"""The upstreams: which one gets a request, how it is sent there, and what of headers crosses the gateway.

Requests, responses and errors are httpx's; the connections under them are aiohttp's.
"""

from app.upstream.client import Sent, Upstreams
from app.upstream.decompression import Undecoded, decoded
from app.upstream.headers import returned_headers
from app.upstream.open_paths import OpenPaths
from app.upstream.request import Content, Form, Headers, UpstreamRequest
from app.upstream.upstream_keys import KeySource

__all__ = [
    "Content",
    "Form",
    "Headers",
    "KeySource",
    "OpenPaths",
    "Sent",
    "Undecoded",
    "UpstreamRequest",
    "Upstreams",
    "decoded",
    "returned_headers",
]
