"""Connections to one server: directly, or through the proxy that the environment names."""

from __future__ import annotations

import os
import ssl
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from unsoftmax.errors import UsageError

__all__ = ["connection_pool"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def connection_pool(
    url: httpx.URL, connections: int, backend: httpcore.NetworkBackend
) -> httpcore.ConnectionPool:
    """A pool of `connections` connections over `backend`. Loopback addresses never use a proxy."""
    here = url.host in _LOOPBACK
    context = _trusted(here) if url.scheme == "https" else None
    proxy = None if here or proxy_bypass(url.host) else _proxy(url.scheme)
    if proxy is None:
        return httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=connections,
            max_keepalive_connections=connections,
            network_backend=backend,
        )
    auth = (proxy.username, proxy.password) if proxy.userinfo else None
    kind = httpcore.SOCKSProxy if proxy.scheme.startswith("socks5") else httpcore.HTTPProxy
    try:
        return kind(
            str(proxy.copy_with(userinfo=b"")),
            proxy_auth=auth,
            ssl_context=context,
            max_connections=connections,
            max_keepalive_connections=connections,
            network_backend=backend,
        )
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"a SOCKS proxy needs the package socksio ({error}); pip install socksio") from error


def _proxy(scheme: str) -> httpx.URL | None:
    proxies = getproxies()
    text = proxies.get(scheme) or proxies.get("all")
    if not text:
        return None
    try:
        return httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL:
        raise UsageError(
            f"the proxy for {scheme} in the environment is not a web address; correct or unset it"
        ) from None


def _trusted(here: bool) -> ssl.SSLContext:
    """The authorities that SSL_CERT_FILE or SSL_CERT_DIR name, else those that come with the client."""
    try:
        return httpx.create_ssl_context(trust_env=not here)
    except (OSError, ssl.SSLError) as error:
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise UsageError(
            f"the certificates in {named} cannot be read: {error}; check SSL_CERT_FILE"
        ) from error
