"""Model providers: which one serves a model name, at which address and with which key."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.providers.adapter import HttpModel, WireFormat
from mainspring.capabilities.providers.anthropic.client import ANTHROPIC, ANTHROPIC_BEARER
from mainspring.capabilities.providers.catalog import Catalog
from mainspring.capabilities.providers.http_call import Endpoint, bearer_headers
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.model_registry import HelperKeyModel, ModelRegistry
from mainspring.capabilities.providers.openai_chat.client import CHAT
from mainspring.capabilities.providers.openai_responses.client import RESPONSES
from mainspring.capabilities.providers.provider_table import (
    ANTHROPIC_KEY_VARIABLE,
    PROVIDERS,
    Provider,
)
from mainspring.capabilities.providers.retry import OutagePolicy, Timing
from mainspring.capabilities.providers.router import RouterSettings
from mainspring.capabilities.providers.script_file import OFFLINE_MODEL, demo_model
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Model
from mainspring.files.atomic_file import read_bounded
from mainspring.runtime.settings.project_trust import MODELS_FILE, is_trusted_file

if TYPE_CHECKING:
    from mainspring.capabilities.providers import embeddings
else:
    embeddings = LazyModule("mainspring.capabilities.providers.embeddings")


_WIRE_FORMATS = {"anthropic": ANTHROPIC, "chat": CHAT, "responses": RESPONSES}


def default_model(settings: Settings) -> str:
    """The user's choice, else that of the first provider with a key, else the offline model."""
    if settings.model is not None:
        return settings.model
    for provider in PROVIDERS.values():
        has_helper = provider.key == ANTHROPIC_KEY_VARIABLE and settings.read_api_key is not None
        if provider.model is not None and (provider.key in settings.keys or has_helper):
            return provider.model
    return OFFLINE_MODEL


def is_other_provider(settings: Settings, names: str, chosen: str) -> bool:
    """Whether a provider that serves none of the `chosen` models, and that can be reached with what
    the user has set, serves one of `names`. Raises: InvalidInput: a catalog is not valid."""
    catalog = read_catalog(settings)
    own = {_provider_name(catalog, item) for item in chosen.split(",")}
    if settings.model is None and chosen == OFFLINE_MODEL:  # then a local server is used anyway
        own |= {name for name, provider in PROVIDERS.items() if provider.key is None}
    others = {_provider_name(catalog, item) for item in names.split(",")} - own
    return any(_is_reachable(settings, PROVIDERS[name]) for name in others & PROVIDERS.keys())


def _provider_name(catalog: Catalog, name: str) -> str:
    try:
        return catalog.resolve(name.strip()).partition(":")[0]
    except InvalidInput:  # it is refused when it is opened, with a hint
        return ""


def _is_reachable(settings: Settings, provider: Provider) -> bool:
    has_helper = provider.key == ANTHROPIC_KEY_VARIABLE and settings.read_api_key is not None
    return provider.key is None or bool(settings.secrets.get(provider.key)) or has_helper


_LOG = logging.getLogger("mainspring.models")


def read_catalog(settings: Settings) -> Catalog:
    """The shipped catalog, the user's `~/.mainspring/models.toml`, and the working folder's if
    somebody has trusted it: it sets prices, and with them what limits mean, and where a
    conversation is sent.

    Raises: InvalidInput: a file cannot be read or is not a catalog.
    """
    home, folder = Path(settings.home), Path(settings.folder)
    users = home / MODELS_FILE
    file = folder / MODELS_FILE
    content = None if file == users else read_bounded(file)
    if content is None:
        return Catalog.load(users)
    if not is_trusted_file(file, content, home=home):
        _warn_untrusted(str(file))
        return Catalog.load(users)
    return Catalog.load(users, layers=[(str(file), content.decode(errors="replace"))])


@cache
def _warn_untrusted(file: str) -> None:
    _LOG.warning(
        "warning: %s: nobody has trusted this file as it is, so its models, prices and aliases are"
        " not used; `mainspring policy trust` shows it and trusts it",
        file,
    )


@asynccontextmanager
async def open_model_registry(settings: Settings) -> AsyncGenerator[ModelRegistry, None]:
    catalog = read_catalog(settings)
    async with HttpClient(trust_environment=True) as http:
        clients = _ModelClients(http, catalog, settings)
        yield ModelRegistry(
            catalog,
            clients.make,
            connect_early=clients.connect_early,
            default_model=default_model(settings),
            small_models={name: provider.small for name, provider in PROVIDERS.items()},
            router_settings=_router_settings(settings),
            timing=Timing(),
        )


def _router_settings(settings: Settings) -> RouterSettings:
    text = settings.model_retry_seconds
    if text is None:
        return RouterSettings()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        variable = "MAINSPRING_MODEL_RETRY_SECONDS"
        raise InvalidInput(f"{variable}: {text} is not a number of seconds, such as 600")
    return RouterSettings(outage=OutagePolicy(limit_seconds=seconds))


def embedding_endpoint(settings: Settings, model_id: str) -> embeddings.EmbeddingEndpoint:
    """Raises: InvalidInput: there is no such provider, or it has no embeddings, or no key."""
    name, _, model = model_id.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None or provider.speaks == "anthropic":
        able = ", ".join(key for key, item in PROVIDERS.items() if item.speaks != "anthropic")
        raise InvalidInput(f"{name} has no embedding endpoint; those of {able} can be used")
    key = provider_key(settings, model_id, provider).strip()
    url = f"{provider_url(settings, provider)}/embeddings"
    endpoint = Endpoint(provider=name, url=url, secret=key, headers=bearer_headers(key))
    return embeddings.EmbeddingEndpoint(endpoint=endpoint, model=model)


def provider_url(settings: Settings, provider: Provider) -> str:
    return settings.secrets.get(provider.address or "", provider.url)


def provider_key(settings: Settings, model_id: str, provider: Provider) -> str:
    if provider.key is None:
        return ""
    key = settings.secrets.get(provider.key, "")
    if not key:
        raise error_table.NO_KEY.error(InvalidInput, model=model_id, variable=provider.key)
    return key


class _ModelClients(Struct, frozen=True):
    http: HttpClient
    catalog: Catalog
    settings: Settings

    def make(self, model_id: str) -> Model:
        if model_id == OFFLINE_MODEL:
            return demo_model()
        name = model_id.partition(":")[0]
        provider = PROVIDERS.get(name)
        if provider is None:
            raise error_table.UNKNOWN_PROVIDER.error(
                InvalidInput, model=model_id, provider=name, providers=", ".join(PROVIDERS)
            )
        if (
            provider.key == ANTHROPIC_KEY_VARIABLE
            and ANTHROPIC_KEY_VARIABLE not in self.settings.secrets
            and self.settings.read_api_key
        ):
            make = partial(self._client, provider, model_id, ANTHROPIC_BEARER)
            return HelperKeyModel(self.settings.read_api_key, make, time.monotonic)
        key = provider_key(self.settings, model_id, provider)
        return self._client(provider, model_id, _WIRE_FORMATS[provider.speaks], key)

    def connect_early(self, model_id: str) -> None:
        if provider := PROVIDERS.get(model_id.partition(":")[0]):
            self.http.connect_early(provider_url(self.settings, provider))

    def _client(
        self, provider: Provider, model_id: str, wire_format: WireFormat, key: str
    ) -> HttpModel:
        return HttpModel(
            self.http,
            wire_format,
            key=key,
            url=provider_url(self.settings, provider),
            provider=model_id.partition(":")[0],
            quirks=self.catalog.quirks(model_id),
        )
