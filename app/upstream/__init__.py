"""The upstreams: which one gets a request, how it is sent there, and what of headers crosses the gateway.

The client is one of our own over llhttp; what goes wrong has httpx's names.
"""

from app.upstream.client import Sent, Upstreams
from app.upstream.decompression import Undecoded, decoded
from app.upstream.headers import returned_headers
from app.upstream.http.response import Headers, Response
from app.upstream.request import Content, Form, UpstreamRequest
from app.upstream.upstream_keys import KeySource

__all__ = [
    "Content",
    "Form",
    "Headers",
    "KeySource",
    "Response",
    "Sent",
    "Undecoded",
    "UpstreamRequest",
    "Upstreams",
    "decoded",
    "returned_headers",
]
