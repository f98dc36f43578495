"""A new skill: one small file that is valid as it stands and says what to write where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.errors import AlreadyThere, InvalidInput
from mainspring.runtime.folder.whole_file import write_whole
from mainspring.runtime.skills.contents import Item, contents_hash
from mainspring.runtime.skills.installing import FOLDER, check_name

_MAX_DESCRIPTION = 1024
_TEXT = """\
---
name: {name}
description: {description}
---
# {title}

Say here what to do, step by step, as you would tell a colleague who is new.

## Steps
1. Look at what is there before changing anything.
2. Do the work.
3. Check the result, and say how it was checked.

Keep this file short. Longer texts go into references/, programs into scripts/: they cost nothing
until they are needed.
"""


@dataclass(frozen=True, slots=True)
class NewSkill:
    file: Path
    hash: str
    """Of its contents as they were written."""


def new_skill(base: Path, name: str, description: str | None) -> NewSkill:
    """Write a skill into the user's folder or the project's. Blocks.

    Raises:
        InvalidInput: a name or a description that a skill cannot have.
        AlreadyThere.
    """
    check_name(name)
    title = name.replace("-", " ").capitalize()
    said = " ".join((description or _usual(title)).split())
    if not said or len(said) > _MAX_DESCRIPTION:
        raise InvalidInput(f"a description has 1 to {_MAX_DESCRIPTION} characters")
    folder = base / FOLDER / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise AlreadyThere(f"{folder}: there is one already") from error
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror or error}") from error
    file = folder / "SKILL.md"
    # JSON's text is YAML's, whatever stands in it.
    quoted = json.dumps(said, ensure_ascii=False)
    content = _TEXT.format(name=name, description=quoted, title=title).encode()
    write_whole(file, content)
    # not of what is there by now: another program may have been quick
    return NewSkill(file, contents_hash([Item(path=file.name, content=content)]))


def _usual(title: str) -> str:
    return f"{title}. Use when somebody asks for it; say here which words they will use."
