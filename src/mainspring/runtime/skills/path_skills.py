"""Skills that apply to certain files: the model is told about one when it touches such a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.instruction_parsing import expand_braces, matches_glob
from mainspring.harness.context.instructions import Section
from mainspring.runtime.skills.skill import Skill


def skills_for_path(skills: Iterable[Skill]) -> Callable[[str], list[Section]]:
    """Finds the skills for a file by its path in the project."""
    candidates = [(skill, _globs(skill)) for skill in skills if skill.paths and skill.for_model]

    def bring(path: str) -> list[Section]:
        return [
            Section(f"skill:{skill.name}", _path_hint(skill), skill.scope)
            for skill, globs in candidates
            if any(matches_glob(glob, path) for glob in globs)
        ]

    return bring


def _globs(skill: Skill) -> list[str]:
    globs: list[str] = []
    for glob in skill.paths:
        try:
            globs += expand_braces(glob)
        except InvalidInput:
            continue  # it expands to too many patterns
    return globs


def _path_hint(skill: Skill) -> str:
    return (
        f"The skill {skill.name} applies to this file: {skill.description}\n"
        "Use it before you go on, if it fits your task."
    )
