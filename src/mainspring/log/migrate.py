"""Schema migrations: the steps from a database's version to another one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mainspring import error_table
from mainspring.core.errors import InvalidInput, StoreMismatch


class Migration(Struct, frozen=True, kw_only=True):
    version: int
    """The version of the schema after `up`."""
    up: tuple[str, ...]
    down: tuple[str, ...] | None
    """Undoes `up`. `None` if that would lose data; a downgrade then fails."""


class SchemaStatus(Struct, frozen=True):
    """The version of a database's schema, and the version that this release needs."""

    current: int
    newest: int


def pending_migrations(
    place: str, migrations: Sequence[Migration], current: int, target: int | None = None
) -> list[tuple[int, tuple[str, ...]]]:
    """Steps to `target` (the newest by default): the version each ends at, and its statements.

    Raises:
        InvalidInput: there is no such version.
        StoreMismatch: the database is newer than this Mainspring, or a step cannot be undone.
    """
    newest = migrations[-1].version
    if current > newest:
        newer = error_table.STORE_NEWER
        raise newer.error(StoreMismatch, place=place, current=current, newest=newest)
    target = newest if target is None else target
    if not 0 <= target <= newest:
        raise InvalidInput(f"{place}: there is no version {target}; the newest is {newest}")
    if target >= current:
        return [(step.version, step.up) for step in migrations if current < step.version <= target]
    steps: list[tuple[int, tuple[str, ...]]] = []
    for step in reversed(migrations):
        if target < step.version <= current:
            if step.down is None:
                raise StoreMismatch(
                    f"{place}: cannot downgrade from version {step.version}: that would lose data"
                )
            steps.append((step.version - 1, step.down))
    return steps
