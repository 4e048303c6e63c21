"""Upstreams: routing, retries, connections, and header forwarding.

Requests, responses and errors are httpx objects. aiohttp manages the connections.
"""

from app.upstream.client import RawBody, RoutedResponse, UpstreamClient, decoded
from app.upstream.headers import Headers, returned_headers
from app.upstream.key_source import KeySource
from app.upstream.open_paths import OpenPaths
from app.upstream.provider import BodyFormat, Content, UpstreamRequest

__all__ = [
    "BodyFormat",
    "Content",
    "Headers",
    "KeySource",
    "OpenPaths",
    "RawBody",
    "RoutedResponse",
    "UpstreamClient",
    "UpstreamRequest",
    "decoded",
    "returned_headers",
]
