"""The absolute paths that mean the workspace of a session of the service, wherever it is."""

from __future__ import annotations

MEMORY_ALIAS = "/mnt/memory"
WORKSPACE_ALIASES = ("/workspace", "/mnt/session", MEMORY_ALIAS)
"""Names of a session's workspace for clients of the service; its tools accept them too."""


def aliased_folder(alias: str) -> str:
    """What an alias means: a path in the workspace, empty for the workspace itself."""
    return MEMORY_ALIAS.removeprefix("/") if alias == MEMORY_ALIAS else ""
