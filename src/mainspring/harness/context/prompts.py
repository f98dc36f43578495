"""Prompt texts: the system prompt (static part first) and the assignment of a user-defined
outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.events import FileRubric, TextRubric, UserDefineOutcome

BASE_PROMPT = """\
You are an agent that works through tools. Look before you act, act in small steps, and check what
you did. Say what you found, not what you expected. When you are done, say what you did and how you
know that it works. When you cannot do something, say so and why."""


_SKILLS = """\
Skills are instructions for particular kinds of work, each with a name and its purpose. When one
fits the task, first call the tool `skill` with its name, and follow its instructions."""


def system_prompt(
    *,
    instructions: str = "",
    rules: Sequence[str] = (),
    skills: str = "",
    environment: str = "",
) -> tuple[str, ...]:
    """The static part first; it is the same in all sessions of an agent."""
    static = [BASE_PROMPT]
    if instructions.strip():
        static.append(f"<instructions>\n{instructions.strip()}\n</instructions>")
    if rules:
        pinned = "\n".join(f"- {rule}" for rule in rules)
        static.append(f"<rules>\nThese always apply:\n{pinned}\n</rules>")
    if skills:
        static.append(f"<skills>\n{_SKILLS}\n{skills}\n</skills>")
    parts = ["\n\n".join(static)]
    if environment.strip():
        parts.append(f"<environment>\n{environment.strip()}\n</environment>")
    return tuple(parts)


def outcome_prompt(defined: UserDefineOutcome) -> str:
    match defined.rubric:
        case TextRubric(content=rubric):
            graded = f"<rubric>\n{rubric}\n</rubric>"
        case FileRubric(file_id=file_id):
            graded = f"The rubric is the file {file_id}."
    return (
        "Work until this outcome is reached:\n\n"
        f"<outcome>\n{defined.description}\n</outcome>\n\n"
        "What you have produced will be graded, by somebody who sees only that, with this rubric.\n"
        f"{graded}"
    )
