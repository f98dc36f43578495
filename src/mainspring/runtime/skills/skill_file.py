"""Reads skills and slash commands from their files, leniently."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from mainspring.core.model import Effort
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.frontmatter_fields import (
    Fields,
    first_paragraph,
    read_frontmatter,
    read_text,
)
from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.skills.skill import Skill

SkillKind: TypeAlias = Literal["skill", "command"]

MAX_LISTED_CHARS = 1536
"""The most characters of a description that the model sees."""
_MAX_DESCRIPTION = 1024  # characters: the specification of SKILL.md
_MAX_NAME = 64  # characters: the specification of SKILL.md
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_EFFORTS: tuple[Effort, ...] = get_args(Effort)
_CONTEXTS = ("fork", "inline", "inherit")


class _Source(Struct, frozen=True):
    file: Path
    part_location: PartLocation
    text: str
    fields: Fields

    def full_name(self, name: str) -> str:
        return name if self.part_location.plugin is None else f"{self.part_location.plugin}:{name}"


def read_skill(
    file: Path, place: PartLocation, display_path: str
) -> tuple[Skill | None, list[Finding]]:
    """Read a `SKILL.md`; no skill if it has no readable frontmatter or no description."""
    text = read_text(file, display_path)
    if isinstance(text, Finding):
        return None, [text]
    fields = Fields(read_frontmatter(text), display_path)
    if not fields.frontmatter.is_there:
        fields.fail("has no readable frontmatter: skipped", "begin it with --- and name:")
        return None, fields.findings
    name = " ".join(fields.text("name").split())[:_MAX_NAME] or file.parent.name
    description = fields.text("description")
    _check(fields, name, file.parent.name, description)
    skill = _skill(_Source(file, place, text, fields), name, description, "skill")
    if not description:
        fields.fail("has no description: skipped", "say what it does and when to use it")
        return None, fields.findings
    return skill, fields.findings


def read_command(
    file: Path, place: PartLocation, display_path: str
) -> tuple[Skill | None, list[Finding]]:
    """Read a file of `commands/`. Frontmatter is optional; the folders on its path are part of its
    name."""
    text = read_text(file, display_path)
    if isinstance(text, Finding):
        return None, [text]
    fields = Fields(read_frontmatter(text), display_path)
    relative = Path(file.name) if file == place.path else file.relative_to(place.path)
    name = ":".join(relative.with_suffix("").parts)
    if fields.text("name") not in ("", name, file.stem):
        fields.note(f"a command is named after its file: {name}", "name")
    description = fields.text("description") or first_paragraph(fields.frontmatter.body)
    skill = _skill(_Source(file, place, text, fields), name, description, "command")
    return skill, fields.findings


def _check(fields: Fields, name: str, folder: str, description: str) -> None:
    if len(fields.text("name")) > _MAX_NAME or not _NAME.fullmatch(name):
        form = f"1 to {_MAX_NAME} lowercase letters, digits and single hyphens"
        fields.warn(f"{name!r} is not a valid name for a skill", "name", form)
    elif name != folder:
        fields.warn(f"its name is {name}, but its folder is {folder}", "name", "give both one name")
    if len(description) > _MAX_DESCRIPTION:
        problem = f"the description has more than {_MAX_DESCRIPTION} characters"
        fields.warn(problem, "description", "shorten it: every session pays for it")


def _skill(source: _Source, name: str, description: str, kind: SkillKind) -> Skill:
    fields = source.fields
    model = fields.text("model")
    if fields.text("shell") not in ("", "bash"):
        fields.note("`shell` has no effect: commands run in the sandbox's shell", "shell")
    return Skill(
        name=source.full_name(name),
        description=_listed_description(fields, description),
        file=str(source.file),
        folder=str(source.file.parent),
        hash=hashlib.sha256(source.text.encode()).hexdigest(),
        scope=source.part_location.scope,
        kind=kind,
        for_model=not fields.flag("disable-model-invocation"),
        for_user=fields.flag("user-invocable", default=True),
        argument_hint=_argument_hint(fields),
        arguments=fields.words("arguments") or (),
        allowed_tools=fields.words("allowed-tools") or (),
        disallowed_tools=fields.words("disallowed-tools") or (),
        model=None if model in ("", "inherit") else model,
        effort=fields.choice("effort", _EFFORTS),
        context="fork" if fields.choice("context", _CONTEXTS) == "fork" else "inline",
        agent=fields.text("agent") or None,
        is_background=fields.flag("background"),
        paths=fields.globs("paths"),
        hooks=fields.mapping("hooks"),
        license=fields.text("license") or None,
        compatibility=fields.text("compatibility") or None,
        metadata=fields.mapping("metadata"),
        extra=fields.extra(),
    )


def _listed_description(fields: Fields, description: str) -> str:
    text = f"{description}\n{when}" if (when := fields.text("when_to_use")) else description
    if len(text) > MAX_LISTED_CHARS:
        fields.warn(f"the model sees only its first {MAX_LISTED_CHARS} characters", "description")
    return text[:MAX_LISTED_CHARS]


def _argument_hint(fields: Fields) -> str:
    """`[file]`, which YAML reads as a list of one, is meant literally."""
    value = fields.value("argument-hint")
    if isinstance(value, list):
        return f"[{', '.join(fields.words('argument-hint') or ())}]"
    return fields.text("argument-hint")
