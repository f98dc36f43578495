"""Models that can be used from this machine at once: those with a key, and what runs here."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.wiring.providers import PROVIDERS, Provider

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = LazyModule("aiohttp")

_SECONDS = 1.0
"""That a server on this machine has to answer; most are not there."""
_CONNECT_SECONDS = 0.3
_EMBEDDING = "embed"
"""In the names of models that do not converse."""
_MAX_LISTED = 20


class _ModelEntry(Struct):
    id: str


class _ModelListing(Struct):
    data: list[_ModelEntry]


async def find_models(settings: Settings) -> list[str]:
    """The one that the user has named first, then those with a key, then those of local servers."""
    named = [] if settings.model is None else [settings.model]
    keyed = [
        provider.model
        for provider in PROVIDERS.values()
        if provider.model is not None and provider.key in settings.keys
    ]
    return list(dict.fromkeys([*named, *keyed, *await _local_models(settings)]))


async def find_local_model(settings: Settings) -> str | None:
    """The first model for conversations that a server on this machine has."""
    models = await _local_models(settings, only_loopback=True)
    return next((model for model in models if _EMBEDDING not in model.lower()), None)


async def _local_models(settings: Settings, *, only_loopback: bool = False) -> list[str]:
    found: dict[str, list[str]] = {}

    async def look(name: str, provider: Provider) -> None:
        url = settings.secrets.get(provider.address or "", provider.url)
        if not only_loopback or await _is_listening(url):
            found[name] = [f"{name}:{model}" for model in await _server_models(url)]

    async with anyio.create_task_group() as group:
        for name, provider in PROVIDERS.items():
            if provider.key is None:
                group.start_soon(look, name, provider)
    return [model for name in PROVIDERS for model in found.get(name, ())][:_MAX_LISTED]


async def _is_listening(url: str) -> bool:
    """Whether something on this machine does. An HTTP client takes longer to import than that."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        if host != "localhost" and not ip_address(host).is_loopback:
            return False
        with anyio.fail_after(_CONNECT_SECONDS):
            await (await anyio.connect_tcp(host, port)).aclose()
    except (TimeoutError, OSError, ValueError):
        return False
    return True


async def _server_models(url: str) -> list[str]:
    """What an OpenAI-like server lists; nothing if there is none."""
    try:
        with anyio.fail_after(_SECONDS):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url.rstrip('/')}/models", allow_redirects=False) as response,
            ):
                listing = msgspec.json.decode(await response.read(), type=_ModelListing)
    except (TimeoutError, OSError, ValueError, aiohttp.ClientError, msgspec.MsgspecError):
        return []
    return [entry.id for entry in listing.data]
