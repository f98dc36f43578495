"""Facts about models: context sizes, prices, capabilities."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from mainspring.core.events import Usage

_MILLION = Decimal(1_000_000)  # tokens: the unit of prices


class Price(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens, as published on `date`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    date: str
    expired: str = ""
    """The last day on which it was valid, if it has ended."""


FREE = Price(
    input=Decimal(0), output=Decimal(0), cache_read=Decimal(0), cache_write=Decimal(0), date=""
)


class ModelFacts(Struct, frozen=True, kw_only=True):
    id: str
    """`provider:name`, as people write it."""
    window: int
    max_output: int
    price: Price = FREE
    bytes_per_token: float = 3.5
    """Deliberately low, so that token estimates are high."""
    efforts: tuple[str, ...] = ()
    vision: bool = False
    is_assumed: bool = False
    """The model is unknown; these are the defaults of its provider."""


def cost_of(usage: Usage, price: Price) -> Decimal:
    """What a call with this usage costs, exactly."""
    total = (
        usage.input_tokens * price.input
        + usage.cache_creation_input_tokens * price.cache_write
        + usage.cache_read_input_tokens * price.cache_read
        + usage.output_tokens * price.output
    )
    return total / _MILLION
