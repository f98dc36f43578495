"""The operator's limits on the number and size of the memories in one scope."""

from __future__ import annotations

from collections.abc import Mapping
from os import stat_result

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.memory.note import INDEX_FILE

FILES_VARIABLE = "MAINSPRING_MEMORY_MAX_FILES"
BYTES_VARIABLE = "MAINSPRING_MEMORY_MAX_BYTES"
WAKE_UP_VARIABLE = "MAINSPRING_MEMORY_WAKE_UP_TOKENS"


class MemoryQuota(Struct, frozen=True, kw_only=True):
    max_files: int = 10_000
    max_bytes: int = 50_000_000


def read_quota(environment: Mapping[str, str]) -> MemoryQuota:
    """Raises: InvalidInput."""
    default = MemoryQuota()
    return MemoryQuota(
        max_files=_number(environment, FILES_VARIABLE, default.max_files),
        max_bytes=_number(environment, BYTES_VARIABLE, default.max_bytes),
    )


def read_wake_up_tokens(environment: Mapping[str, str], default: int) -> int:
    """Raises: InvalidInput."""
    return _number(environment, WAKE_UP_VARIABLE, default)


def check_quota(
    quota: MemoryQuota, states: Mapping[str, stat_result], path: str, size: int
) -> None:
    """Check that a file of this size may be written. The index file and files that do not grow
    always may.

    Raises: InvalidInput.
    """
    before = states.get(path)
    if path == INDEX_FILE or (before is not None and size <= before.st_size):
        return
    sizes = [state.st_size for name, state in states.items() if name not in (path, INDEX_FILE)]
    if len(sizes) + 1 > quota.max_files:
        _refuse(path, f"{len(sizes):,} memories", f"{quota.max_files:,}", FILES_VARIABLE)
    if sum(sizes) + size > quota.max_bytes:
        _refuse(path, f"{sum(sizes):,} bytes", f"{quota.max_bytes:,}", BYTES_VARIABLE)


def _refuse(path: str, used: str, limit: str, variable: str) -> None:
    raise InvalidInput(
        f"{path} was not written: this scope has {used}, and the quota is {limit}. Merge or forget"
        f" memories first; {variable} sets another quota"
    )


def _number(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable)
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(f"{variable} must be a whole number above 0, not {text}")
    return int(text)
