"""Amounts of money, as whole cents."""

from __future__ import annotations


def cents(text: str) -> int:
    """Read an amount such as "12.50"."""
    whole, _, rest = text.strip().partition(".")
    return int(whole) * 100 + int(rest.ljust(2, "0"))


def shown(amount: int) -> str:
    """Write an amount as "12.50"."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), 100)
    return f"{sign}{whole}.{rest:02}"


def split(amount: int, parts: int) -> list[int]:
    """Cut an amount into parts that differ by no more than one cent."""
    if parts < 1:
        raise ValueError("an amount is split into one part at least")
    return [amount // parts] * parts
