"""Model providers: which one serves a model name, at which address and with which key."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from mainspring.capabilities.providers.retry import OutagePolicy, Timing
from mainspring.capabilities.providers.router import RouterSettings
from mainspring.capabilities.providers.script_file import OFFLINE_MODEL, demo_model
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import ErrorDetail
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Model
from mainspring.files.atomic_file import read_bounded
from mainspring.runtime.settings.project_trust import MODELS_FILE, is_trusted_file
from mainspring.wiring.settings_files import ANTHROPIC_KEY_VARIABLE

if TYPE_CHECKING:
    from mainspring.capabilities.providers import embeddings
else:
    embeddings = LazyModule("mainspring.capabilities.providers.embeddings")


class Provider(Struct, frozen=True, kw_only=True):
    speaks: Literal["anthropic", "chat", "responses"]
    url: str
    key: str | None = None
    """The variable that holds its key; local servers need none."""
    address: str | None = None
    """The variable that overrides `url`."""
    model: str | None = None
    """The default model."""
    small: str | None = None
    """A cheap model for simple work."""


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        speaks="anthropic",
        url="https://api.anthropic.com/v1",
        key=ANTHROPIC_KEY_VARIABLE,
        address="ANTHROPIC_BASE_URL",
        model="sonnet",
        small="haiku",
    ),
    "openai": Provider(
        speaks="responses",
        url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        address="OPENAI_BASE_URL",
        model="gpt",
        small="openai:gpt-5-mini",
    ),
    "gemini": Provider(
        speaks="chat",
        url="https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        address="GEMINI_BASE_URL",
        model="gemini",
        small="gemini:gemini-3.5-flash-lite",
    ),
    "openrouter": Provider(
        speaks="chat",
        url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        address="OPENROUTER_BASE_URL",
    ),
    "ollama": Provider(speaks="chat", url="http://127.0.0.1:11434/v1", address="OLLAMA_BASE_URL"),
    "vllm": Provider(speaks="chat", url="http://127.0.0.1:8000/v1", address="VLLM_BASE_URL"),
    "lmstudio": Provider(
        speaks="chat", url="http://127.0.0.1:1234/v1", address="LMSTUDIO_BASE_URL"
    ),
    "llamacpp": Provider(
        speaks="chat", url="http://127.0.0.1:8080/v1", address="LLAMACPP_BASE_URL"
    ),
}

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


def hint_for(error: ErrorDetail) -> str | None:
    """What to do about the failure of a model. The error begins with the model's name."""
    name = error.message.partition(":")[0]
    provider = PROVIDERS.get(name)
    if error.failure is None or provider is None:
        return None
    hint = _HINTS.get(error.failure)
    if provider.key is None:
        hint = _LOCAL_HINTS.get(error.failure, hint)
    if hint is None:
        return None
    start = "`ollama serve` starts it" if name == "ollama" else f"start the {name} server"
    load = "`ollama pull NAME` gets it" if name == "ollama" else f"load it in the {name} server"
    return hint.format(key=provider.key, address=provider.address, start=start, load=load)


_FALLBACK = "--model A,B names a model that answers if A does not"
_HINTS: Mapping[str, str] = {
    "unauthorized": "{key} is wrong or revoked: export the right one",
    "forbidden": "the key in {key} may not use this model: choose another with --model, or have it"
    " allowed at the provider",
    "not_found": "the provider has no such model: `mainspring models ls` lists names",
    "billing": "add credit at the provider, or choose another model with --model",
    "rate_limited": f"the limit of your account is reached: try again later; {_FALLBACK}",
    "overloaded": f"the provider has too much to do: try again later; {_FALLBACK}",
    "server": f"the provider has a problem: try again later; {_FALLBACK}",
    "timeout": "the provider or the network is too slow: check the network and HTTPS_PROXY;"
    f" {_FALLBACK}",
    "refused": "no server listens there: check {address} and HTTPS_PROXY",
    "connection": "the connection was lost: check the network and HTTPS_PROXY",
    "unresolved": "check the network, and the name of the host in {address}",
    "certificate": "SSL_CERT_FILE names the certificate of your company's authority; if {address}"
    " is set, check it",
    "prompt_too_long": "use a model with a larger context window, or start a new session",
    "media_too_large": "send a smaller image or document",
    "invalid_request": "`mainspring models test NAME` sends the model a small request",
}
_LOCAL_HINTS: Mapping[str, str] = {
    "unauthorized": "the server at {address} asks for a key; OPENROUTER_BASE_URL and"
    " OPENROUTER_API_KEY are for servers with keys",
    "forbidden": "the server at {address} does not let you use it",
    "not_found": "the server has no such model, or {address} lacks /v1: {load}",
    "rate_limited": f"the server has too many requests: try again later; {_FALLBACK}",
    "server": f"see the log of the server; {_FALLBACK}",
    "refused": "{start}; {address} names another address",
    "timeout": "the server at {address} is too slow, or not there",
    "prompt_too_long": "start the server with a larger context, or use another model",
}


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
