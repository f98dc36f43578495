"""What a crash run found."""

from collections import Counter
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal[
    "lost",
    "duplicate",
    "phantom",
    "torn_batch",
    "broken_chain",
    "inbox",
    "double_lease",
    "fenced_append",
    "blob",
    "follower",
    "child",
]


class Violation(Struct, frozen=True, kw_only=True):
    kind: Kind
    session_id: str
    what: str
    seed: int = 0
    point: int = 0


class Report(Struct, frozen=True, kw_only=True):
    seed: int
    points: int
    """Processes killed, or stopped, and the store checked after."""
    seconds: float
    acknowledged: int
    """Operations that were acknowledged, every one of them checked."""
    in_flight: dict[str, int]
    """What was going on when a process was killed."""
    statements: dict[str, int]
    """Before which SQL statements, where that was chosen."""
    refused: dict[str, int]
    failed: dict[str, int]
    """Answers of the database, not the log: no violation by themselves."""
    lost: int
    """Acknowledged or read, and not there any more, or not the same."""
    duplicates: int
    phantoms: int
    """There, but never asked for, or refused."""
    torn_batches: int
    broken_chains: int
    inbox_errors: int
    double_leases: int
    fenced_appends: int
    lost_blobs: int
    follower_errors: int
    child_errors: int
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        return not self.violations


class Tally:
    """Counts as a run goes on."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.points = 0
        self.acknowledged = 0
        self.in_flight: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def report(self, seconds: float) -> Report:
        kinds = Counter(violation.kind for violation in self.violations)
        return Report(
            seed=self.seed,
            points=self.points,
            seconds=round(seconds, 3),
            acknowledged=self.acknowledged,
            in_flight=dict(self.in_flight.most_common()),
            statements=dict(self.statements.most_common()),
            refused=dict(self.refused.most_common()),
            failed=dict(self.failed.most_common()),
            lost=kinds["lost"],
            duplicates=kinds["duplicate"],
            phantoms=kinds["phantom"],
            torn_batches=kinds["torn_batch"],
            broken_chains=kinds["broken_chain"],
            inbox_errors=kinds["inbox"],
            double_leases=kinds["double_lease"],
            fenced_appends=kinds["fenced_append"],
            lost_blobs=kinds["blob"],
            follower_errors=kinds["follower"],
            child_errors=kinds["child"],
            violations=tuple(self.violations),
        )
