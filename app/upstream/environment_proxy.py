"""Finds the proxy for a URL according to ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``."""

import urllib.request
from urllib.parse import urlsplit

import httpx

_SCHEMES = ("http", "https")


def proxy_for(url: httpx.URL) -> str | None:
    """Return the URL of the proxy, or None for a direct connection. Raises httpx.ConnectError for a proxy that cannot
    be used."""
    if urllib.request.proxy_bypass(url.host):
        return None
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy is None:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme = urlsplit(proxy).scheme
    if scheme not in _SCHEMES:
        raise httpx.ConnectError(f"unsupported proxy scheme {scheme!r}: use http or https")
    return proxy
