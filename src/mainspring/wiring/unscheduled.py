"""What a folder says that its scheduled sessions, which the service runs, would not have."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder.json_file import as_object
from mainspring.wiring.trust import Project

_PERMISSIONS = ("allow", "ask", "deny", "defaultMode")
_ASKS_NOTHING = "bypassPermissions"
_REFUSED = (
    "not scheduled: a scheduled session is one of the service, where this would not hold: {lost}."
    " Remove it from the folder, or create a deployment with the API: the tools of its agent have"
    " permission policies"
)


def why_unscheduled(project: Project) -> str | None:
    """Why the schedule of a folder does not hold; `None`: nothing that restricts would be lost.

    Raises: InvalidInput: a file cannot be understood, so nobody can tell.
    """
    lost = [
        f"{what} ({name})" for name, text in project.settings.items() for what in _lost(name, text)
    ]
    return _REFUSED.format(lost=", ".join(lost)) if lost else None


def _lost(name: str, content: bytes) -> Iterator[str]:
    try:
        text = content.removeprefix(b"\xef\xbb\xbf") or b"{}"
        said = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{name}: not a JSON object: {error}") from error
    permissions = as_object(said.get("permissions")) or {}
    for key in _PERMISSIONS:
        if (value := permissions.get(key)) and value != _ASKS_NOTHING:
            yield f"permissions.{'mode' if key == 'defaultMode' else key}"
    if said.get("hooks"):
        yield "hooks"
    if said.get("sandbox"):
        yield "environment" if "schedule" in said else "sandbox"
