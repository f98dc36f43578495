"""Skills that a person has disabled, by name, in all projects."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder.whole_file import read_bounded, write_whole

FILE = ".mainspring/disabled-skills.json"
"""Below the user's folder."""


def disabled_skills(home: Path) -> frozenset[str]:
    """Raises: InvalidInput: the file cannot be read."""
    file = home / FILE
    content = read_bounded(file)
    if content is None:
        return frozenset()
    try:
        return frozenset(msgspec.json.decode(content, type=list[str]))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to enable all skills") from error


def set_disabled(home: Path, name: str, *, is_disabled: bool) -> bool:
    """False: it was so already.

    Raises: InvalidInput.
    """
    names = disabled_skills(home)
    changed = names | {name} if is_disabled else names - {name}
    if changed == names:
        return False
    write_whole(home / FILE, msgspec.json.encode(sorted(changed)) + b"\n")
    return True
