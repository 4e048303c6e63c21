"""Upstreams: routing, retries, connections, and which headers are forwarded.

Requests, responses and errors are httpx's; the connections under them are aiohttp's.
"""

from app.upstream.client import RoutedResponse, UpstreamClient
from app.upstream.decompression import RawBody, decoded
from app.upstream.headers import returned_headers
from app.upstream.key_source import KeySource
from app.upstream.open_paths import OpenPaths
from app.upstream.request import BodyFormat, Content, Headers, UpstreamRequest

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
