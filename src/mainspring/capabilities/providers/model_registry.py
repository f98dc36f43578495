"""The models that a process can use, by name: each is created on first use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal

import msgspec
from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.providers.catalog import Catalog
from mainspring.capabilities.providers.retry import Timing
from mainspring.capabilities.providers.router import Router, RouterSettings
from mainspring.capabilities.providers.routing_rules import ModelCandidate, Routing
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Model, Reply, Request
from mainspring.core.model_facts import FREE, ModelFacts, Price, cost_of

DEFAULT_MODEL = "default"
SMALL_MODEL = "small"
_KEY_LIFETIME_SECONDS = 300.0
"""How long a key is used before the helper runs again, as in Claude Code."""
_NOT_BY_NAME = (
    error_table.UNKNOWN_MODEL,
    error_table.UNKNOWN_PROVIDER,
    error_table.NO_SCRIPT,
)


def facts_of(catalog: Catalog, name: str) -> ModelFacts:
    """The facts of one or several models, separated by commas; see `safest_facts`."""
    return safest_facts([catalog.lookup(item.strip()) for item in name.split(",")])


def safest_facts(every: Sequence[ModelFacts]) -> ModelFacts:
    """Values that are safe for all of them: the smallest window, and the highest price of each kind
    of token."""
    if len(every) == 1:
        return every[0]
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


def model_unavailable(error: InvalidInput, *, model: str, session_id: str) -> InvalidInput:
    """Why a session cannot continue with its model. A name that is unknown here was that of an
    object in a Python program."""
    if error.entry not in _NOT_BY_NAME:
        return error
    return error_table.MODEL_FROM_PYTHON.error(InvalidInput, model=model, session=session_id)


class ModelRegistry:
    def __init__(
        self,
        catalog: Catalog,
        make_client: Callable[[str], Model],
        *,
        connect_early: Callable[[str], None],
        default_model: str,
        small_models: Mapping[str, str | None],
        router_settings: RouterSettings | None = None,
        timing: Timing | None = None,
    ) -> None:
        """`make_client` and `connect_early` take an id of the catalog. `small_models`: the cheap
        model of each provider, if it has one."""
        self.catalog = catalog
        self._make_client = make_client
        self._connect_early = connect_early
        self._default_model = default_model
        self._small_models = small_models
        self._models: dict[str, Model] = {}
        self._router_settings = router_settings
        self._timing = timing
        self._routers: dict[str, Router] = {}

    def put(self, name: str, model: Model) -> None:
        """Register `model` under a name: for tests, demonstrations and models of your own."""
        self._models[name] = model
        self._routers.clear()

    def open(self, name: str) -> Model:
        """A model by its name, or several separated by commas: each is the fallback of the one
        before.

        Raises:
            InvalidInput: there is no such model, or no key for it.
        """
        if name in self._models:
            return self._models[name]
        return self.router(name).route()

    def connect_early(self, name: str) -> None:
        """Open a connection to the model, or to the first of several, while a session is set up."""
        first = name.split(",", maxsplit=1)[0].strip()
        if first not in self._models:
            self._connect_early(self.catalog.resolve(first))

    def router(self, name: str) -> Router:
        if name not in self._routers:
            candidates = [self._candidate(item.strip()) for item in name.split(",")]
            routing = Routing({"main": candidates})
            self._routers[name] = Router(routing, self._router_settings, self._timing)
        return self._routers[name]

    def resolve(self, name: str) -> str:
        """The name for a session's log: `default` becomes the actual model."""
        is_default = name == DEFAULT_MODEL and name not in self._models
        return self._default_model if is_default else name

    def related(self, wanted: str, to: str) -> str:
        """See `runtime.session.session_context.Models`. A session that works offline stays
        offline."""
        first = to.split(",", maxsplit=1)[0].strip()
        if first in self._models or wanted in self._models:
            return wanted if wanted in self._models else to
        try:
            provider = self.catalog.resolve(first).partition(":")[0]
            if wanted == SMALL_MODEL:
                wanted = self._small_models.get(provider) or to
            self.open(wanted)
        except InvalidInput:
            return to  # no key, or an unknown name
        return wanted if provider in self._small_models else to

    def facts(self, name: str) -> ModelFacts:
        return safest_facts([self._facts(item.strip()) for item in name.split(",")])

    def cost(self, name: str, usage: Usage) -> Decimal:
        first = name.split(",", maxsplit=1)[0].strip()
        return cost_of(usage, FREE) if self._is_custom(first) else self.catalog.cost(first, usage)

    def _facts(self, name: str) -> ModelFacts:
        if self._is_custom(name):
            return ModelFacts(id=name, window=200_000, max_output=32_000)
        return self.catalog.lookup(name)

    def _is_custom(self, name: str) -> bool:
        """Whether the user registered it, and the catalog does not list it."""
        return name in self._models and name not in self.catalog

    def _candidate(self, name: str) -> ModelCandidate:
        if name in self._models:
            return ModelCandidate(id=name, model=self._models[name])
        model_id = self.catalog.resolve(name)
        return ModelCandidate(id=model_id, model=self._make_client(model_id))


class HelperKeyModel(Struct, eq=False):
    """A model whose key comes from `apiKeyHelper`, which runs again every five minutes."""

    read_key: Callable[[], Awaitable[str]]
    make: Callable[[str], Model]
    monotonic: Callable[[], float]
    _model: Model | None = None
    _made_at: float = 0.0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        model = await self._fresh()
        async with aclosing(model.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def _fresh(self) -> Model:
        now = self.monotonic()
        if self._model is None or now - self._made_at > _KEY_LIFETIME_SECONDS:
            try:
                self._model = self.make(await self.read_key())
            except InvalidInput as error:
                raise ProviderFailed("anthropic", "unauthorized", str(error)) from error
            self._made_at = now
        return self._model
