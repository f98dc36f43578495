"""Skills that apply to certain files: the model is told about one when it touches such a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.instructions import Section
from mainspring.harness.context.rule_globs import expand_braces, matches_glob
from mainspring.runtime.skills.skill import Skill


def skills_for_path(skills: Iterable[Skill]) -> Callable[[str], list[Section]]:
    """Which of them are about a file, by its path in the project."""
    about = [(skill, _globs(skill)) for skill in skills if skill.paths and skill.for_model]

    def bring(path: str) -> list[Section]:
        return [
            Section(f"skill:{skill.name}", _path_hint(skill), skill.scope)
            for skill, globs in about
            if any(matches_glob(glob, path) for glob in globs)
        ]

    return bring


def _globs(skill: Skill) -> list[str]:
    found: list[str] = []
    for glob in skill.paths:
        try:
            found += expand_braces(glob)
        except InvalidInput:
            continue  # it stands for too many to be meant
    return found


def _path_hint(skill: Skill) -> str:
    return (
        f"The skill {skill.name} is about this file: {skill.description}\n"
        "Use it before you go on, if that is what you do."
    )
