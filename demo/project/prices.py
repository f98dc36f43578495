"""Prices in a shop."""


def with_rebate(price: float, rebate: float) -> float:
    """What is left to pay after a rebate of, say, 0.1."""
    return price + price * rebate


def with_tax(price: float, rate: float) -> float:
    return price + price * rate
