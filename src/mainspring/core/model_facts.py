"""Facts about models that the rest of the system reasons with: sizes, prices, abilities."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from mainspring.core.events import Usage

_MILLION = Decimal(1_000_000)


class Price(Struct, frozen=True, kw_only=True):
    """US dollars a million tokens, as published on `date`."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    date: str
    expired: str = ""
    """The last day that it held, if that is over."""


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
    """Leans low, so that estimates lean high."""
    efforts: tuple[str, ...] = ()
    vision: bool = False
    is_assumed: bool = False
    """Nothing is known of the model itself: these are its provider's defaults."""


def cost_of(usage: Usage, price: Price) -> Decimal:
    """What a call with this usage costs, exactly."""
    total = (
        usage.input_tokens * price.input
        + usage.cache_creation_input_tokens * price.cache_write
        + usage.cache_read_input_tokens * price.cache_read
        + usage.output_tokens * price.output
    )
    return total / _MILLION
