"""A bill and who pays what of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tally.money import cents, split


@dataclass
class Bill:
    guests: list[str]
    items: list[int] = field(default_factory=list[int])

    def add(self, price: str) -> None:
        self.items.append(cents(price))

    @property
    def total(self) -> int:
        return sum(self.items)

    def shares(self) -> dict[str, int]:
        """What each guest pays: together, the whole bill."""
        parts = split(self.total, len(self.guests))
        return {guest: parts[spec] for spec, guest in enumerate(self.guests)}
