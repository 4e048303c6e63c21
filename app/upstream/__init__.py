"""The upstreams: which one gets a request, how it is sent there, and what of headers crosses the gateway.

The client is one of our own over llhttp; what goes wrong has httpx's names.
"""

from app.upstream.decoding import Undecoded, decoded
from app.upstream.headers import returned_headers
from app.upstream.keys import KeySource
from app.upstream.request import Content, Form, UpstreamRequest
from app.upstream.response import Headers, Response
from app.upstream.upstreams import Sent, Upstreams

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
