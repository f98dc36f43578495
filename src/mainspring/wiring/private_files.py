"""Where the operator's own files are, and that none is in a folder of the service's sessions."""

from __future__ import annotations

from pathlib import Path

from mainspring.capabilities.sandbox.backend import containing_paths, file_identity
from mainspring.config import Settings, is_postgres
from mainspring.core.errors import InvalidInput

_STORE_SUFFIXES = ("", "-wal", "-shm")


def private_files(settings: Settings) -> tuple[Path, ...]:
    """The files of the store, and of the vault with its key."""
    vault = (
        [Path(settings.vault), Path(settings.vault).with_suffix(".key")] if settings.vault else []
    )
    if is_postgres(settings.store):
        return tuple(vault)
    return (*(Path(f"{settings.store}{suffix}") for suffix in _STORE_SUFFIXES), *vault)


def misplaced_file(settings: Settings) -> Path | None:
    """A private file that is below the folder in which the service's sessions work."""
    return containing_paths(private_files(settings)).get(
        file_identity(Path(settings.workspaces)) or (0, 0)
    )


def require_private_files_apart(settings: Settings) -> str | None:
    """Nothing, or what to change where an existing store is in the wrong place.

    Raises:
        InvalidInput: a store that does not exist yet would be made there.
    """
    misplaced = misplaced_file(settings)
    if misplaced is None:
        return None
    told = f"{misplaced} is below {settings.workspaces}, where sessions work"
    fix = (
        "set MAINSPRING_WORKSPACES, MAINSPRING_STORE or MAINSPRING_VAULT so that none is in another"
    )
    if not is_postgres(settings.store) and Path(settings.store).exists():
        return f"{told}: {fix}, and move what is there"
    refused = InvalidInput(told)
    refused.add_note(fix)
    raise refused
