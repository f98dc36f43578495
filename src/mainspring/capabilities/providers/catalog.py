"""Facts about each model: sizes, prices, abilities. They are in `catalog.toml`."""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage
from mainspring.core.model import Effort
from mainspring.core.model_facts import FREE, ModelFacts, Price, cost_of

Table: TypeAlias = dict[str, object]
T = TypeVar("T")

_MAX_CACHED = 1000  # names of models; each a small record
_NUMBER = re.compile(r"\d+")
_SNAPSHOT = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_RELATIVE_MODELS = ("inherit", "small", "default")
"""Names for a model that is chosen only where the agent runs."""
_SCRIPT_PREFIX = "scripted:"


class Tariff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    valid_until: date | None = None
    """The last day on which it applies."""
    successor: Tariff | None = None
    """The tariff from the day after."""

    def price_on(self, day: date, price_date: str) -> Price:
        """Its price on a day, or that of its successor."""
        is_over = self.valid_until is not None and self.valid_until < day
        if is_over and self.successor is not None:
            return self.successor.price_on(day, price_date)
        return Price(
            input=self.input,
            output=self.output,
            cache_read=self.cache_read,
            cache_write=self.cache_write,
            date=price_date,
            expired=str(self.valid_until) if is_over else "",
        )


class LongTariff(Tariff, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replaces the tariff for the whole of a call whose prompt is longer than `over` tokens."""

    over: int


class ModelListing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the catalog."""

    window: int
    max_output: int
    bytes_per_token: float = 3.0
    tokenizer: str = "unknown"
    efforts: tuple[Effort, ...] = ()
    vision: bool = False
    price: Tariff | None = None
    long: LongTariff | None = None
    price_date: str = ""
    min_cached_tokens: int = 0
    """The shortest prefix of a prompt that is cached; 0: not known, or there is no cache."""
    family: str | None = None
    quirks: Quirks = Quirks()


class _Lists(Struct, frozen=True, forbid_unknown_fields=True):
    aliases: dict[str, str] = {}
    families: dict[str, Table] = {}
    models: dict[str, Table] = {}
    providers: dict[str, Table] = {}


class Catalog:
    """The shipped facts and, on top of them, the user's."""

    def __init__(self, *layers: tuple[str, str], clock: Clock = clocks.now) -> None:
        """Each layer is a name for error messages and a TOML text; a later one wins."""
        self._clock = clock
        self._aliases: dict[str, str] = {}
        self._families: dict[str, Table] = {}
        self._models: dict[str, Table] = {}
        self._providers: dict[str, Table] = {}
        self._resolved: dict[str, str] = {}  # a cache: a turn looks up several times
        self._listings: dict[str, ModelListing] = {}
        for name, text in layers:
            self._add(name, text)
        for model in self._models:
            self.listing(model)

    @classmethod
    def load(cls, *files: Path, layers: Sequence[tuple[str, str]] = ()) -> Catalog:
        """The shipped catalog, extended by those of the files that exist, then by the layers.

        Raises:
            InvalidInput: a file cannot be read or is not a catalog; the message says where.
        """
        package = importlib.resources.files("mainspring.capabilities.providers")
        shipped = ("catalog.toml", (package / "catalog.toml").read_text(encoding="utf-8"))
        texts = [(str(file), _read(file)) for file in files if file.exists()]
        return cls(shipped, *texts, *layers)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._models)

    @property
    def aliases(self) -> dict[str, str]:
        return dict(self._aliases)

    def __contains__(self, name: str) -> bool:
        return name in self._models or name in self._aliases

    def resolve(self, name: str) -> str:
        """The id, `provider:name`, of an alias, a bare name or an id.

        Raises:
            InvalidInput: the name is unknown; it lists similar names.
        """
        if (resolved := self._resolved.get(name)) is None:
            resolved = _cache(self._resolved, name, self._resolve(name))
        return resolved

    def _resolve(self, name: str) -> str:
        name = self._aliases.get(name, name)
        provider, colon, _ = name.partition(":")
        if name in self._models:
            return name
        if colon and provider in self._providers and not self._is_misspelled(name):
            return name
        if colon and _SNAPSHOT.sub("", name) in self._models:
            return name
        bare = [model_id for model_id in self._models if model_id.partition(":")[2] == name]
        if len(bare) == 1 and not colon:
            return bare[0]
        raise error_table.UNKNOWN_MODEL.error(
            InvalidInput, name=name, near=self._similar_names(name)
        )

    def lookup(self, name: str) -> ModelFacts:
        """Facts with the model's highest price, which is right for a reservation; `cost` is exact.

        Raises:
            InvalidInput: the name is unknown; it lists similar names.
        """
        model = self.resolve(name)
        listing = self.listing(model)
        tariff = listing.long or listing.price
        return ModelFacts(
            id=model,
            window=listing.window,
            max_output=listing.max_output,
            price=self._price(listing, tariff),
            bytes_per_token=listing.bytes_per_token,
            efforts=listing.efforts,
            vision=listing.vision,
            is_assumed=not (model in self._models or _SNAPSHOT.sub("", model) in self._models),
        )

    def cost(self, name: str, usage: Usage) -> Decimal:
        """The cost of a call with this usage, by the tariff for the length of its prompt."""
        listing = self.listing(self.resolve(name))
        prompt = (
            usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        )
        is_long = listing.long is not None and prompt > listing.long.over
        tariff = listing.long if is_long else listing.price
        return cost_of(usage, self._price(listing, tariff))

    def price(self, name: str) -> Price:
        """Today's price for a prompt that is not long."""
        listing = self.listing(self.resolve(name))
        return self._price(listing, listing.price)

    def next_price(self, name: str) -> tuple[date, Price] | None:
        """The next price that is known, and its first day."""
        listing = self.listing(self.resolve(name))
        tariff, today = listing.price, self._clock().date()
        while tariff is not None and tariff.valid_until is not None:
            if tariff.valid_until >= today and tariff.successor is not None:
                first = tariff.valid_until + timedelta(days=1)
                return first, tariff.successor.price_on(first, listing.price_date)
            tariff = tariff.successor
        return None

    def _price(self, listing: ModelListing, tariff: Tariff | None) -> Price:
        if tariff is None:
            return FREE
        return tariff.price_on(self._clock().date(), listing.price_date)

    def quirks(self, name: str) -> Quirks:
        """Quirks for the adapter, completed by other facts of the catalog."""
        listing = self.listing(self.resolve(name))
        return msgspec.structs.replace(
            listing.quirks,
            efforts=listing.efforts,
            max_output=listing.max_output,
            supports_images=listing.vision,
        )

    def listing(self, model: str) -> ModelListing:
        """All facts about `provider:name`; for an unlisted model, the provider's defaults."""
        if (entry := self._listings.get(model)) is None:
            entry = _cache(self._listings, model, self._listing(model))
        return entry

    def _listing(self, model: str) -> ModelListing:
        provider = model.partition(":")[0]
        own = self._models.get(model) or self._models.get(_SNAPSHOT.sub("", model), {})
        family = own.get("family")
        if isinstance(family, str) and family not in self._families:
            raise InvalidInput(f"models.{model}: there is no family {family!r}")
        inherited = self._families[family] if isinstance(family, str) else {}
        table = {**self._providers.get(provider, {}), **inherited, **own}
        try:
            return msgspec.convert(table, ModelListing)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"models.{model}: {error}") from error

    def _add(self, name: str, text: str) -> None:
        try:
            lists = msgspec.convert(tomllib.loads(text), _Lists)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidInput(f"{name}: {error}") from error
        for model in lists.models:
            if ":" not in model:
                raise InvalidInput(f"{name}: models.{model}: write it as provider:name")
        self._aliases |= lists.aliases
        for target, added in (
            (self._families, lists.families),
            (self._models, lists.models),
            (self._providers, lists.providers),
        ):
            for key, table in added.items():
                target[key] = {**target.get(key, {}), **table}

    def _is_misspelled(self, name: str) -> bool:
        """Whether a name is very close to a listed one; with other numbers it is another model."""
        close = difflib.get_close_matches(name, self._models, n=1, cutoff=0.9)
        return bool(close) and _NUMBER.findall(close[0]) == _NUMBER.findall(name)

    def _similar_names(self, name: str) -> str:
        names = [*self._models, *self._aliases]
        bare = {model_id.partition(":")[2]: model_id for model_id in self._models}
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        close += [bare[match] for match in difflib.get_close_matches(name, bare, n=3, cutoff=0.6)]
        if close:
            return "did you mean " + ", ".join(dict.fromkeys(close[:3])) + "?"
        return "models are written provider:name, for example anthropic:claude-sonnet-5-5"


def _cache(cache: dict[str, T], name: str, value: T) -> T:
    if len(cache) >= _MAX_CACHED:  # clients may ask for any name
        cache.clear()
    cache[name] = value
    return value


@functools.cache
def bundled_catalog() -> Catalog:
    """The shipped catalog without additions."""
    return Catalog.load()


def lookup(name: str) -> ModelFacts:
    """Facts from the shipped catalog.

    Raises:
        InvalidInput: the name is unknown; it lists similar names.
    """
    return bundled_catalog().lookup(name)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error


def missing_model_reason(read_catalog: Callable[[], Catalog], names: str) -> str | None:
    """The reason why a model is not in the catalog; `None` if all exist.
    Scripts are not checked: the user sees the error."""
    model_names = [name.strip() for name in names.split(",")]
    model_names = [name for name in model_names if name not in ("", *_RELATIVE_MODELS)]
    model_names = [name for name in model_names if not name.startswith(_SCRIPT_PREFIX)]
    if not model_names:
        return None
    try:
        models = read_catalog()
        for name in model_names:
            models.resolve(name)
    except InvalidInput as error:
        return str(error)
    return None
