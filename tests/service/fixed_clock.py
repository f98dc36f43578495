"""A clock that stands still until a test moves it, and those who ask in these tests."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mainspring.service.access.principal import Principal, Role

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@dataclass
class Time:
    passed: float = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def pass_(self, seconds: float) -> None:
        self.passed += seconds


def person(tenant: str = "acme", role: Role = "admin") -> Principal:
    return Principal(tenant=tenant, key_id="cli", role=role, name="olga")
