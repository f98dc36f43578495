"""Model registry: which provider serves a model name, at which address and with which key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from mainspring.capabilities.providers.anthropic.client import AnthropicModel
from mainspring.capabilities.providers.catalog import Catalog
from mainspring.capabilities.providers.demo_model import demo_model
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_chat.client import ChatModel
from mainspring.capabilities.providers.openai_responses.client import ResponsesModel
from mainspring.capabilities.providers.router import Router
from mainspring.capabilities.providers.routing_rules import ModelCandidate, Routing
from mainspring.capabilities.providers.script_file import offline_model
from mainspring.config import Settings
from mainspring.core import error_table
from mainspring.core.atomic_file import read_bounded
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.core.model import Model
from mainspring.core.model_facts import FREE, ModelFacts, Price, cost_of
from mainspring.wiring.settings_commands import ANTHROPIC_KEY_VARIABLE, HelperKeyModel

DEFAULT_MODEL = "default"
OFFLINE_MODEL = "scripted:demo"
SMALL_MODEL = "small"
_SCRIPTED_PREFIX = "scripted:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    speaks: Literal["anthropic", "chat", "responses"]
    url: str
    key: str | None = None
    """The variable that holds its key; local servers need none."""
    address: str | None = None
    """The variable that holds another URL."""
    model: str | None = None
    """What to use of it when nothing else is said."""
    small: str | None = None
    """What to use of it for work that has to be cheap rather than clever."""


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        speaks="anthropic",
        url="https://api.anthropic.com/v1",
        key="ANTHROPIC_API_KEY",
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


def default_model(settings: Settings) -> str:
    """What the user said, else the first provider with a key, else the offline model."""
    if settings.model is not None:
        return settings.model
    for provider in PROVIDERS.values():
        has_helper = provider.key == ANTHROPIC_KEY_VARIABLE and settings.read_api_key is not None
        if provider.model is not None and (provider.key in settings.keys or has_helper):
            return provider.model
    return OFFLINE_MODEL


def hint_for(failure: str) -> str | None:
    """What to do about a model's failure, whose words begin with the provider's name."""
    name = failure.partition(":")[0]
    provider = PROVIDERS.get(name)
    if provider is None:
        return None
    if provider.key is None:
        starting = "`ollama serve` starts it" if name == "ollama" else f"start the {name} server"
        return f"{starting}; {provider.address} names another address"
    return (
        f"check {provider.key} and the network (HTTPS_PROXY, SSL_CERT_FILE); `mainspring models"
        " test NAME` asks a model"
    )


def facts_of(catalog: Catalog, name: str) -> ModelFacts:
    """Of several, what is safe for any: the smallest window, the dearest price."""
    return safest_facts([catalog.lookup(item.strip()) for item in name.split(",")])


def safest_facts(every: Sequence[ModelFacts]) -> ModelFacts:
    """The smallest window, and of each kind of token the dearest price."""
    prices = [facts.price for facts in every]
    return msgspec.structs.replace(
        every[0],
        window=min(facts.window for facts in every),
        max_output=min(facts.max_output for facts in every),
        price=Price(
            input=max(price.input for price in prices),
            output=max(price.output for price in prices),
            cache_read=max(price.cache_read for price in prices),
            cache_write=max(price.cache_write for price in prices),
            date=min(price.date for price in prices),
            expired=max(price.expired for price in prices),
        ),
    )


def scripted_models(name: str, folder: Path) -> dict[str, Model]:
    """Of the models that an agent is run with, those that are scripts in its folder.

    Nobody but whoever runs the agent may name one: others could have any file read.

    Raises:
        InvalidInput: there is no such file inside the folder, or it is no script.
    """
    wanted = [item.strip() for item in name.split(",")]
    files = [item for item in wanted if item.startswith(_SCRIPTED_PREFIX) and item != OFFLINE_MODEL]
    return {file: _read_script(file.removeprefix(_SCRIPTED_PREFIX), folder) for file in files}


def _read_script(path: str, folder: Path) -> Model:
    file = (folder / path).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise InvalidInput(f"{path}: a script is inside the agent's folder, {folder}")
    content = read_bounded(file)
    if content is None:
        raise error_table.NO_SCRIPT.error(InvalidInput, path=path, folder=folder)
    return offline_model(content.decode(errors="replace"), name=path)


def model_unavailable(error: InvalidInput, *, model: str, session_id: str) -> InvalidInput:
    """Why a session cannot go on with the model it had: a name that nothing here has was that of an
    object in a Python program."""
    if error.entry not in _NOT_BY_NAME_HINT:
        return error
    gone = error_table.MODEL_FROM_PYTHON
    return gone.error(InvalidInput, model=model, session=session_id)


_NOT_BY_NAME_HINT = (
    error_table.UNKNOWN_MODEL,
    error_table.UNKNOWN_PROVIDER,
    error_table.NO_SCRIPT,
)


class ModelRegistry:
    """Every model that this process can reach, made when it is first asked for."""

    def __init__(self, http_client: HttpClient, catalog: Catalog, settings: Settings) -> None:
        self.catalog = catalog
        self._http_client = http_client
        self._settings = settings
        self._made: dict[str, Model] = {}
        self._routers: dict[str, Router] = {}

    def put(self, name: str, model: Model) -> None:
        """Have `model` answer to a name: for tests, demonstrations and models of one's own."""
        self._made[name] = model
        self._routers.clear()

    def open(self, name: str) -> Model:
        """A model by its name, or several separated by commas: the next stands in for the last.

        Raises:
            InvalidInput: there is no such model, or no key for it.
        """
        if name in self._made:
            return self._made[name]
        return self.router(name).route()

    def router(self, name: str) -> Router:
        if name not in self._routers:
            candidates = [self._candidate(item.strip()) for item in name.split(",")]
            self._routers[name] = Router(Routing({"main": candidates}))
        return self._routers[name]

    def resolve(self, name: str) -> str:
        """The name that a session's log gets: `default` said out."""
        return (
            default_model(self._settings)
            if name == DEFAULT_MODEL and name not in self._made
            else name
        )

    def related(self, wanted: str, to: str) -> str:
        """See `runtime.sessions.Models`. Who works offline stays so."""
        first = to.split(",", maxsplit=1)[0].strip()
        if first in self._made or wanted in self._made:
            return wanted if wanted in self._made else to
        try:
            provider = PROVIDERS.get(self.catalog.resolve(first).partition(":")[0])
            if wanted == SMALL_MODEL:
                wanted = (provider and provider.small) or to
            self.open(wanted)
        except InvalidInput:
            return to  # no key, or nothing is known by that name here
        return to if provider is None else wanted

    def facts(self, name: str) -> ModelFacts:
        return safest_facts([self._facts(item.strip()) for item in name.split(",")])

    def cost(self, name: str, usage: Usage) -> Decimal:
        first = name.split(",", maxsplit=1)[0].strip()
        return cost_of(usage, FREE) if self._is_strange(first) else self.catalog.cost(first, usage)

    def _facts(self, name: str) -> ModelFacts:
        if self._is_strange(name):
            return ModelFacts(id=name, window=200_000, max_output=32_000)
        return self.catalog.lookup(name)

    def _is_strange(self, name: str) -> bool:
        """Put here by its user, and not in the catalog."""
        return name in self._made and name not in (*self.catalog.ids, *self.catalog.aliases)

    def _candidate(self, name: str) -> ModelCandidate:
        if name in self._made:
            return ModelCandidate(id=name, model=self._made[name])
        model_id = self.catalog.resolve(name)
        return ModelCandidate(id=model_id, model=self._client(model_id))

    def _client(self, model_id: str) -> Model:
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
            and ANTHROPIC_KEY_VARIABLE not in self._settings.secrets
            and self._settings.read_api_key
        ):
            make = partial(self._spoken, provider, model_id, is_bearer=True)
            return HelperKeyModel(self._settings, make, time.monotonic)
        return self._spoken(provider, model_id, self._key(model_id, provider))

    def _spoken(
        self, provider: Provider, model_id: str, key: str, *, is_bearer: bool = False
    ) -> Model:
        name = model_id.partition(":")[0]
        url = self._settings.secrets.get(provider.address or "", provider.url)
        quirks = self.catalog.quirks(model_id)
        match provider.speaks:
            case "anthropic":
                headers = {"authorization": f"Bearer {key}"} if is_bearer else {}
                return AnthropicModel(
                    self._http_client,
                    key=key,
                    url=url,
                    provider=name,
                    quirks=quirks,
                    headers=headers,
                )
            case "responses":
                return ResponsesModel(
                    self._http_client, key=key, url=url, provider=name, quirks=quirks
                )
            case "chat":
                return ChatModel(self._http_client, key=key, url=url, provider=name, quirks=quirks)

    def _key(self, model_id: str, provider: Provider) -> str:
        if provider.key is None:
            return ""
        key = self._settings.secrets.get(provider.key, "")
        if not key:
            raise error_table.NO_KEY.error(InvalidInput, model=model_id, variable=provider.key)
        return key
