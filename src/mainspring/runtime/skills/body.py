"""The text of a skill, as the model gets it: from its file, within bounds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.core.lazy import LazyModule
from mainspring.runtime.folder.finding import Finding
from mainspring.runtime.skills.injecting import RunCommand, injected
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.substitution import Filling

if TYPE_CHECKING:
    from mainspring.runtime.folder import frontmatter
    from mainspring.runtime.skills import contents
else:
    frontmatter = LazyModule("mainspring.runtime.folder.frontmatter")  # most sessions use none
    contents = LazyModule("mainspring.runtime.skills.contents")

MAX_CHARS = 20_000
"""Of a skill's text that the model is given at once: about 5,000 tokens."""
_MAX_FILES = 50
_END = re.compile(r"<(?=/skill\b)", re.IGNORECASE)


async def body_of(skill: Skill) -> str:
    """
    Raises:
        InvalidInput: it is not what the session began with.
    """
    return await to_thread.run_sync(read_body, skill)


async def filled(body: str, filling: Filling, run: RunCommand) -> str:
    """A skill's text with what it is called with, and what else there is in its folder."""
    skill = filling.skill
    text = (await injected(body, filling, run)).strip() + filling.rest()
    return shown(skill, text, await to_thread.run_sync(_files, skill))


def read_body(skill: Skill) -> str:
    """Blocking.

    Raises:
        InvalidInput: it is not what the session began with.
    """
    text = frontmatter.read_text(Path(skill.file), skill.name) if skill.file else ""
    is_seen = not skill.contents or _contents(skill) == skill.contents
    if isinstance(text, Finding) or sha256(text.encode()).hexdigest() != skill.hash or not is_seen:
        raise InvalidInput(
            f"the skill {skill.name} has changed since this session began; start a new session"
        )
    return frontmatter.read_head(text).body


def _contents(skill: Skill) -> str | None:
    """Of the scripts that it brings, too: what it allows, it allows those that were seen."""
    try:
        return contents.contents_hash(contents.read_contents(Path(skill.folder)))
    except MainspringError:
        return None


def shown(skill: Skill, text: str, files: Sequence[str] = ()) -> str:
    """A text cannot end its own section."""
    text = _END.sub("&lt;", text)
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[... cut here: the rest stands in {skill.file}]"
    listed = f"\nFiles in {skill.folder}: {', '.join(files)}" if files else ""
    return f'<skill name="{escape(skill.name)}">\n{text}\n</skill>{listed}'


def _files(skill: Skill) -> list[str]:
    """What is in its folder besides, so that the model can read and run it. Blocking."""
    if skill.kind != "skill":
        return []
    found: list[str] = []
    for folder, folders, files in os.walk(skill.folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if path != skill.file and not name.startswith("."):
                found.append(Path(path).relative_to(skill.folder).as_posix())
        if len(found) > _MAX_FILES:
            return [*found[:_MAX_FILES], "..."]
    return found
