"""The text of a skill for the model: read from its file within limits, with arguments and command
output filled in, or preloaded into a subagent's prompt.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread
from msgspec import Struct

from mainspring.core.content import plain_text
from mainspring.core.errors import InvalidInput, MainspringError, ToolEnvironmentError
from mainspring.core.events import SkillUsed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.tool import Call
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.tool_calls.tool_call import new_call
from mainspring.harness.tool_calls.tool_pipeline import authorize_call
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.substitution import SkillSubstitution

if TYPE_CHECKING:
    from mainspring.runtime.definition_files import frontmatter_fields
    from mainspring.runtime.packages import package_contents
else:
    frontmatter_fields = LazyModule(
        "mainspring.runtime.definition_files.frontmatter_fields"
    )  # most sessions use none
    package_contents = LazyModule("mainspring.runtime.packages.package_contents")


RunCommand: TypeAlias = Callable[[str], Awaitable[str]]
"""Runs a command and returns its output. Raises: MainspringError: it may not run, or it failed."""

MAX_COMMANDS = 20  # of one skill whose output becomes part of it
MAX_OUTPUT_CHARS = 8_000  # of one of them
_INLINE = re.compile(r"(?<!\S)!`([^`\n]+)`")
_BLOCK_OPENING, _BLOCK_CLOSING = "```!", "```"


class BodySegment(Struct, frozen=True):
    text: str
    """The text as written, including the markup of a command."""
    command: str | None = None


def split_commands(body: str) -> Iterator[BodySegment]:
    """Split a text at its commands. A block that is not closed is not a command."""
    lines = body.splitlines(keepends=True)
    closing = deque(number for number, line in enumerate(lines) if line.strip() == _BLOCK_CLOSING)
    index = 0
    while index < len(lines):
        while closing and closing[0] <= index:
            closing.popleft()
        if lines[index].strip() == _BLOCK_OPENING and closing:
            block = lines[index : closing[0] + 1]
            yield BodySegment("".join(block), "".join(block[1:-1]).strip())
            index += len(block)
        else:
            yield from _inline_segments(lines[index])
            index += 1


def has_commands(body: str) -> bool:
    return any(piece.command for piece in split_commands(body))


async def run_embedded_commands(body: str, substitution: SkillSubstitution, run: RunCommand) -> str:
    """Fill in the arguments and the output of the commands. A command that cannot run stays in the
    text, with the reason."""
    pieces: list[str] = []
    commands = 0
    for piece in split_commands(body):
        if not piece.command:
            pieces.append(substitution.fill(piece.text))
            continue
        commands += 1
        if commands > MAX_COMMANDS:
            pieces.append(
                _not_run_note(substitution.fill(piece.text), f"more than {MAX_COMMANDS} commands")
            )
            continue
        try:
            pieces.append(_truncate_output(await run(substitution.fill(piece.command))))
        except MainspringError as error:
            pieces.append(_not_run_note(substitution.fill(piece.text), str(error)))
    return "".join(pieces)


def refusing_runner(why: str) -> RunCommand:
    async def refuse(_command: str) -> str:
        raise InvalidInput(why)

    return refuse


def bash_runner(context: ThreadContext, call: Call) -> RunCommand:
    """Runs commands as if the model had called `bash`: with the same permissions, hooks and
    sandbox. A command that needs approval is not run; the model can still ask for it itself."""

    async def run(command: str) -> str:
        tool = context.toolbox.find("bash")
        tool_input = {"command": command}
        if tool is None or tool.traits(tool_input).by_client:
            raise ToolEnvironmentError("there is no shell here")
        bash_call = new_call(context, call.id, "bash", tool_input)
        decision = await authorize_call(context, bash_call, tool)
        context.note(*decision.facts)
        if decision.decision != "allow":
            raise InvalidInput(decision.reason or "the permission rules do not allow it")
        if decision.updated_input is not None:
            bash_call = replace(bash_call, input=decision.updated_input)
        result = await tool.run(bash_call)
        text = plain_text(result.content).strip()
        if not result.ok:
            raise InvalidInput(f"it failed: {_truncate_output(text)}")
        return text

    return run


def _inline_segments(line: str) -> Iterator[BodySegment]:
    end = 0
    for match in _INLINE.finditer(line):
        if match.start() > end:
            yield BodySegment(line[end : match.start()])
        yield BodySegment(match[0], match[1].strip())
        end = match.end()
    if end < len(line):
        yield BodySegment(line[end:])


def _truncate_output(output: str) -> str:
    if len(output) <= MAX_OUTPUT_CHARS:
        return output
    return f"{output[:MAX_OUTPUT_CHARS]}\n[... {len(output) - MAX_OUTPUT_CHARS} characters more]"


def _not_run_note(text: str, why: str) -> str:
    return f"{text.rstrip()} [not run: {why}]" + ("\n" if text.endswith("\n") else "")


MAX_CHARS = 20_000
"""The most of a skill's text that the model gets at once: about 5,000 tokens."""
_MAX_FILES = 50  # listed below the body
_END_TAG = re.compile(r"<(?=/skill\b)", re.IGNORECASE)


async def load_body(skill: Skill) -> str:
    """Read a skill's text.

    Raises:
        InvalidInput: it has changed since the session began.
    """
    return await to_thread.run_sync(read_body, skill)


async def render_body(body: str, substitution: SkillSubstitution, run: RunCommand) -> str:
    """A skill's text with its arguments filled in, and a list of the other files in its folder."""
    skill = substitution.skill
    text = (
        await run_embedded_commands(body, substitution, run)
    ).strip() + substitution.unused_arguments()
    return skill_section(skill, text, await to_thread.run_sync(_files, skill))


def read_body(skill: Skill) -> str:
    """Read a skill's text. Blocks.

    Raises:
        InvalidInput: it has changed since the session began.
    """
    text = frontmatter_fields.read_text(Path(skill.file), skill.name) if skill.file else ""
    is_unchanged = not skill.contents or _current_contents(skill) == skill.contents
    if (
        isinstance(text, Finding)
        or sha256(text.encode()).hexdigest() != skill.hash
        or not is_unchanged
    ):
        raise InvalidInput(
            f"the skill {skill.name} has changed since this session began; start a new session"
        )
    return frontmatter_fields.read_frontmatter(text).body


def _current_contents(skill: Skill) -> str | None:
    """The hash of all files, including scripts: permissions are granted only for the files that
    were trusted."""
    try:
        return package_contents.contents_hash(package_contents.read_contents(Path(skill.folder)))
    except MainspringError:
        return None


def skill_section(skill: Skill, text: str, files: Sequence[str] = ()) -> str:
    """Put the text between tags that it cannot close itself."""
    text = _END_TAG.sub("&lt;", text)
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[... truncated: the rest is in {skill.file}]"
    file_list = f"\nFiles in {skill.folder}: {', '.join(files)}" if files else ""
    return f'<skill name="{escape(skill.name)}">\n{text}\n</skill>{file_list}'


def _files(skill: Skill) -> list[str]:
    """The other files in its folder, so that the model can read and run them. Blocks."""
    if skill.kind != "skill":
        return []
    paths: list[str] = []
    for folder, folders, files in os.walk(skill.folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if path != skill.file and not name.startswith("."):
                paths.append(Path(path).relative_to(skill.folder).as_posix())
        if len(paths) > _MAX_FILES:
            return [*paths[:_MAX_FILES], "..."]
    return paths


MAX_PRELOADED_CHARS = 100_000
"""The limit for all preloaded skills together: about 25,000 tokens."""


def preloaded_text(names: Iterable[str], skills: Iterable[Skill]) -> str:
    """The texts of the named skills, in that order. A skill that has changed since the session
    began, or does not fit, is only mentioned. Blocks."""
    texts: list[str] = []
    chars_left = MAX_PRELOADED_CHARS
    for skill in _preloaded_skills(names, skills):
        try:
            text = skill_section(skill, read_body(skill).strip())
        except InvalidInput as error:
            text = f"[{error}]"
        if len(text) > chars_left:
            text = f"[The skill {skill.name} did not fit here: use it when you need it.]"
        chars_left -= len(text)
        texts.append(text)
    return "\n\n".join(texts)


def _preloaded_skills(names: Iterable[str], skills: Iterable[Skill]) -> list[Skill]:
    """The named skills, except those that only a user may call."""
    available = {skill.name: skill for skill in skills if skill.for_model}
    return [available[name] for name in dict.fromkeys(names) if name in available]


def preload_facts(names: Iterable[str], skills: Iterable[Skill]) -> list[SkillUsed]:
    """The events that record the preloaded skills. They grant no permission."""
    return [
        SkillUsed(name=skill.name, hash=skill.hash, by="agent")
        for skill in _preloaded_skills(names, skills)
    ]
