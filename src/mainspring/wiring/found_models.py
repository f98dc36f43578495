"""Models that can be used from this machine at once: those with a key, and what runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.lazy import LazyModule
from mainspring.wiring.models import PROVIDERS, Provider

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = LazyModule("aiohttp")

_SECONDS = 1.0
"""That a server on this machine has to answer; most are not there."""
_MOST_BYTES = 1_000_000
_MOST_SHOWN = 20


class _Entry(Struct):
    id: str


class _Listing(Struct):
    data: list[_Entry]


async def find_models(settings: Settings) -> list[str]:
    """The one that the user has named first, then those with a key, then those of local servers."""
    named = [] if settings.model is None else [settings.model]
    keyed = [
        provider.model
        for provider in PROVIDERS.values()
        if provider.model is not None and provider.key in settings.keys
    ]
    return list(dict.fromkeys([*named, *keyed, *await _local(settings)]))


async def _local(settings: Settings) -> list[str]:
    found: dict[str, list[str]] = {}

    async def look(name: str, provider: Provider) -> None:
        url = settings.secrets.get(provider.address or "", provider.url)
        found[name] = [f"{name}:{model}" for model in await _served(url)]

    async with anyio.create_task_group() as group:
        for name, provider in PROVIDERS.items():
            if provider.key is None:
                group.start_soon(look, name, provider)
    return [model for name in PROVIDERS for model in found.get(name, ())][:_MOST_SHOWN]


async def _served(url: str) -> list[str]:
    """What an OpenAI-like server lists; nothing if there is none."""
    try:
        with anyio.fail_after(_SECONDS):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url.rstrip('/')}/models", allow_redirects=False) as response,
            ):
                content = await response.content.read(_MOST_BYTES)
                listing = msgspec.json.decode(content, type=_Listing)
    except (TimeoutError, OSError, ValueError, aiohttp.ClientError, msgspec.MsgspecError):
        return []
    return [entry.id for entry in listing.data]
