"""What a campaign may spend: calls by kind, and money. Everything is reserved before it is spent,
so that no limit is exceeded by even one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

CallKind: TypeAlias = Literal["metric", "sealed", "proposer", "judge", "recall"]


class BudgetReached(Exception):
    """The next call would exceed a limit."""

    def __init__(self, kind: str, limit: object) -> None:
        super().__init__(f"the limit of {limit} {kind} is reached")


@dataclass(slots=True)
class Meter:
    """Counts calls and money against limits; a kind without a limit is only counted. Sealed calls,
    those of the gate, share the limit of metric calls if they have none of their own."""

    limits: Mapping[CallKind, int]
    limit_usd: Decimal | None = None
    calls: dict[CallKind, int] = field(default_factory=dict[CallKind, int])
    spent_usd: Decimal = Decimal(0)
    _reserved_usd: Decimal = Decimal(0)

    def left(self, kind: CallKind) -> int | None:
        """How many calls of the kind are left; `None`: no limit."""
        kinds = self._sharing(kind)
        limit = self.limits.get(kinds[0])
        return None if limit is None else limit - sum(self.calls.get(name, 0) for name in kinds)

    def can_spend(self, kind: CallKind, count: int) -> bool:
        left = self.left(kind)
        return left is None or count <= left

    def reserve(self, kind: CallKind, count: int = 1) -> None:
        """Raises: BudgetReached: a limit would be exceeded; nothing is reserved then."""
        if not self.can_spend(kind, count):
            raise BudgetReached(f"{kind} calls", self.limits[self._sharing(kind)[0]])
        self.calls[kind] = self.calls.get(kind, 0) + count

    def release(self, kind: CallKind) -> None:
        """Take back the reservation of a call that was not made."""
        self.calls[kind] -= 1

    def reserve_usd(self, usd: Decimal) -> None:
        """Raises: BudgetReached: the limit would be exceeded; nothing is reserved then."""
        committed = self.spent_usd + self._reserved_usd + usd
        if self.limit_usd is not None and committed > self.limit_usd:
            raise BudgetReached("US dollars", self.limit_usd)
        self._reserved_usd += usd

    def settle(self, reserved_usd: Decimal, cost_usd: Decimal) -> None:
        """Replace a reservation of money by what the calls have cost."""
        self._reserved_usd -= reserved_usd
        self.spent_usd += cost_usd

    def _sharing(self, kind: CallKind) -> tuple[CallKind, ...]:
        """The kinds that share a limit, the one that has the limit first."""
        if kind in ("metric", "sealed") and "sealed" not in self.limits:
            return ("metric", "sealed")
        return (kind,)
