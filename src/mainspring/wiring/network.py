"""How a session reaches hosts: the proxy that its programs find, and the tool that gets pages."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.network.authority import Authority
from mainspring.capabilities.network.fetch import WebFetch
from mainspring.capabilities.network.placeholders import Credential, Placeholders
from mainspring.capabilities.network.proxy import EgressProxy
from mainspring.capabilities.network.rules import Rules
from mainspring.capabilities.tools.web import web_fetch
from mainspring.capabilities.vault.encodings import KnownValues
from mainspring.core import clock
from mainspring.core.facts import NetworkRequested
from mainspring.core.tool import Tool
from mainspring.log.session_log import SessionLog
from mainspring.wiring.web_sources import KnownUrls
from mainspring.wiring.wish import WebFetchLimits

_ADDRESS = "127.0.0.1:3128"
"""Where programs in a sandbox find the proxy; its agent listens there."""


@dataclass(frozen=True, slots=True)
class WayOut:
    proxy: EgressProxy
    variables: Mapping[str, str]
    """What leads programs to the proxy, and stands for secrets."""

    async def serve(self, listener: socket.socket) -> None:
        await self.proxy.serve(listener)


async def open_way_out(
    rules: Rules,
    usable: Sequence[Credential],
    *,
    share: Path,
    audit: Callable[[NetworkRequested], None],
) -> WayOut:
    authority = await to_thread.run_sync(Authority, clock.now)
    proxy = EgressProxy(rules, Placeholders(usable, KnownValues), authority, audit)
    bundle = share / "certificates.pem"
    await to_thread.run_sync(authority.write_bundle, bundle)
    names = [each.name for each in usable]
    return WayOut(proxy, proxy.environment(names, address=_ADDRESS, bundle=bundle))


def fetching(fetch: WebFetch, limits: WebFetchLimits, *, log: SessionLog, session_id: str) -> Tool:
    known = KnownUrls(log, session_id, limits.sources)
    return web_fetch(fetch, most_chars=limits.max_chars, refusal=known.refusal)
