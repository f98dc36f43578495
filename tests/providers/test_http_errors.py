"""Errors of the network are told in words that a person can act on."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from mainspring.capabilities.providers.http_errors import translate_errors
from mainspring.core.errors import ProviderFailed

_KEY = ConnectionKey(
    "api.example", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
)


def test_a_host_name_that_cannot_be_resolved_is_named():
    unresolved = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with (
        pytest.raises(ProviderFailed, match=r"api\.example:443: the host name cannot be resolved"),
        translate_errors("anthropic", "secret"),
    ):
        raise aiohttp.ClientConnectorDNSError(_KEY, unresolved)
