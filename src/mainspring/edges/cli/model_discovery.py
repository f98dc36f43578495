"""Models that can be used from this machine at once: those with a key, and what runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
_MAX_BYTES = 1_000_000
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


async def _local_models(settings: Settings) -> list[str]:
    found: dict[str, list[str]] = {}

    async def look(name: str, provider: Provider) -> None:
        url = settings.secrets.get(provider.address or "", provider.url)
        found[name] = [f"{name}:{model}" for model in await _server_models(url)]

    async with anyio.create_task_group() as group:
        for name, provider in PROVIDERS.items():
            if provider.key is None:
                group.start_soon(look, name, provider)
    return [model for name in PROVIDERS for model in found.get(name, ())][:_MAX_LISTED]


async def _server_models(url: str) -> list[str]:
    """What an OpenAI-like server lists; nothing if there is none."""
    try:
        with anyio.fail_after(_SECONDS):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url.rstrip('/')}/models", allow_redirects=False) as response,
            ):
                content = await response.content.read(_MAX_BYTES)
                listing = msgspec.json.decode(content, type=_ModelListing)
    except (TimeoutError, OSError, ValueError, aiohttp.ClientError, msgspec.MsgspecError):
        return []
    return [entry.id for entry in listing.data]
