"""How a session reaches hosts: the proxy for its programs, and the tool that fetches pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.network.certificate_authority import CertificateAuthority
from mainspring.capabilities.network.egress_proxy import EgressProxy
from mainspring.capabilities.network.model_search import ModelSearch, ReportSpending
from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.network.rules import EgressRules
from mainspring.capabilities.network.web_client import WebFetch
from mainspring.capabilities.network.web_search import parse_search_provider
from mainspring.capabilities.providers.provider_table import PROVIDERS
from mainspring.capabilities.tools.web_fetch import web_fetch
from mainspring.capabilities.vault.known_values import KnownValues
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import NetworkRequested
from mainspring.core.model_facts import ModelFacts
from mainspring.core.ports import Credential, Search
from mainspring.core.tool import Tool
from mainspring.log.session_log import SessionLog
from mainspring.runtime.run_options import WebFetchLimits

__all__ = ["WebFetch", "open_egress", "search_provider", "web_fetch_tool"]
_MODEL_API = "anthropic"
_PROXY_ADDRESS = "127.0.0.1:3128"
"""The address of the proxy in a sandbox, where the sandbox's agent listens."""


def search_provider(
    text: str,
    settings: Settings,
    facts: Callable[[str], ModelFacts],
    report: ReportSpending,
) -> Search:
    """The provider that MAINSPRING_SEARCH names. Raises: InvalidInput."""
    name, _, model = text.strip().partition(":")
    if name != _MODEL_API:
        return parse_search_provider(text, settings.secrets)
    provider = PROVIDERS[name]
    if not (key := settings.secrets.get(provider.key or "")):
        raise InvalidInput(f"MAINSPRING_SEARCH: {name} needs a key in {provider.key}")
    url = settings.secrets.get(provider.address or "") or provider.url
    model_facts = facts(f"{name}:{model}" if model else provider.small or "")
    return ModelSearch(url=url.rstrip("/"), key=key, model=model_facts.id, report=report)


async def open_egress(
    egress_rules: EgressRules,
    credentials: Sequence[Credential],
    *,
    share: Path,
    audit: Callable[[NetworkRequested], None],
) -> tuple[EgressProxy, Mapping[str, str]]:
    """The proxy, and the variables that contain its address and the placeholders of secrets."""
    authority = await to_thread.run_sync(CertificateAuthority, clock.now)
    proxy = EgressProxy(egress_rules, Placeholders(credentials, KnownValues), authority, audit)
    bundle = share / "certificates.pem"
    await to_thread.run_sync(authority.write_bundle, bundle)
    names = [item.name for item in credentials]
    return proxy, proxy.environment(names, address=_PROXY_ADDRESS, bundle=bundle)


def web_fetch_tool(
    fetch: WebFetch, limits: WebFetchLimits, *, log: SessionLog, session_id: str
) -> Tool:
    async def url_refusal(url: str) -> str | None:
        refusal = limits.url_refusal
        return None if refusal is None else await refusal(log, session_id, url)

    return web_fetch(fetch, most_chars=limits.max_chars, refusal=url_refusal)
