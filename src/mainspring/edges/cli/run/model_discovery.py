"""Finds the models that can be used at once: those with a key, and those of local servers."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from mainspring.capabilities.providers.provider_table import PROVIDERS, Provider
from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = LazyModule("aiohttp")

_SECONDS = 1.0
"""How long to wait for a server on this machine; most are absent."""
_CONNECT_SECONDS = 0.3  # for a server on this machine
_EMBEDDING = "embed"
"""Part of the names of models that are not for conversations."""
_MAX_LISTED = 20  # models named in a message


class _ModelEntry(Struct):
    id: str


class _ModelListing(Struct):
    data: list[_ModelEntry]


async def find_models(settings: Settings) -> list[str]:
    """First the model in the settings, then those with a key, then those of local servers."""
    default = [] if settings.model is None else [settings.model]
    with_key = [
        provider.model
        for provider in PROVIDERS.values()
        if provider.model is not None and provider.key in settings.keys
    ]
    return list(dict.fromkeys([*default, *with_key, *await _local_models(settings)]))


async def find_local_model(settings: Settings) -> str | None:
    """The first model for conversations of a server on this machine."""
    models = await _local_models(settings, only_loopback=True)
    return next((model for model in models if _EMBEDDING not in model.lower()), None)


async def _local_models(settings: Settings, *, only_loopback: bool = False) -> list[str]:
    models: dict[str, list[str]] = {}

    async def list_models(name: str, provider: Provider) -> None:
        url = settings.secrets.get(provider.address or "", provider.url)
        if not only_loopback or await _is_listening(url):
            models[name] = [f"{name}:{model}" for model in await _server_models(url)]

    async with anyio.create_task_group() as group:
        for name, provider in PROVIDERS.items():
            if provider.key is None:
                group.start_soon(list_models, name, provider)
    return [model for name in PROVIDERS for model in models.get(name, ())][:_MAX_LISTED]


async def _is_listening(url: str) -> bool:
    """Whether a server listens on this machine. This is faster than importing an HTTP client."""
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
    """The models of an OpenAI-compatible server; empty if there is none."""
    try:
        with anyio.fail_after(_SECONDS):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url.rstrip('/')}/models", allow_redirects=False) as response,
            ):
                listing = msgspec.json.decode(await response.read(), type=_ModelListing)
    except (
        TimeoutError,
        OSError,
        ValueError,
        aiohttp.ClientError,
        msgspec.MsgspecError,
        RecursionError,
    ):
        return []
    return [entry.id for entry in listing.data]
