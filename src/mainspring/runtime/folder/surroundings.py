"""What holds for a file because of where it is: nested instructions, scoped rules, and the like.

It comes with the result of the call that touched the file, and goes with it in a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from anyio import to_thread

from mainspring.core.content import TextBlock
from mainspring.core.tool import Call, Outcome, Tool, Traits
from mainspring.harness.context.disk import Disk
from mainspring.harness.context.instructions import (
    Files,
    Instructions,
    Limits,
    Places,
    Section,
    load_nested,
    render_section,
    rules_for,
)

MAX_CHARS = 40_000
"""Of what comes with one result: as much as a single file may say. The rest comes with the next."""
_ROOM = MAX_CHARS + 2000  # tags and notices

AnyTool = TypeVar("AnyTool", bound=Tool)
Bringing: TypeAlias = Callable[[str], Iterable[Section]]
"""What else holds for a path, which is relative to the project. May wait: it runs in a thread."""


class Surroundings:
    """Of one session. Each thread is shown a section once, until it has to forget."""

    def __init__(
        self,
        places: Places,
        instructions: Instructions,
        *,
        files: Files | None = None,
        also: Sequence[Bringing] = (),
    ) -> None:
        self._files = files or Disk()
        self._places = places
        self._instructions = instructions
        self._known = frozenset(section.source for section in instructions.sections)
        self._also = tuple(also)
        self._shown: dict[str, set[str]] = {}

    async def for_path(self, path: str, *, thread_id: str = "") -> list[Section]:
        """What a thread has not been shown yet of what holds for a file: the most general first."""
        found = await to_thread.run_sync(self._found, path)
        shown = self._shown.setdefault(thread_id, set())
        new: list[Section] = []
        room = MAX_CHARS
        for section in found:
            if section.source in shown or (new and len(section.text) > room):
                continue
            room -= len(section.text)
            shown.add(section.source)
            new.append(section)
        return new

    def forget(self, thread_id: str | None = None) -> None:
        """After a compaction: what was shown may be gone. Of all threads, unless one is named."""
        if thread_id is None:
            self._shown.clear()
        else:
            self._shown.pop(thread_id, None)

    def _found(self, path: str) -> list[Section]:
        places = self._places.followed(self._files)
        real = self._files.real(places.cwd / path)
        if not real.is_relative_to(places.project):
            return []
        name = real.relative_to(places.project).as_posix()
        nested = load_nested(self._files, places, real, Limits(max_chars=MAX_CHARS))
        rules = (*rules_for(self._instructions, [name]), *rules_for(nested, [name]))
        sections = [
            *nested.sections,
            *(Section(rule.source, rule.text, rule.scope) for rule in rules),
            *(section for bring in self._also for section in bring(name)),
        ]
        # It holds already, or is what the call was about.
        return [each for each in sections if each.source not in self._known and each.source != name]


def surrounded(tool: AnyTool, surroundings: Surroundings) -> AnyTool:
    """A tool on files, by its input `file_path`, that also tells what holds for that file."""

    async def run(call: Call) -> Outcome:
        outcome = await tool.run(call)
        path = call.input.get("file_path")
        if not outcome.ok or not isinstance(path, str):
            return outcome
        sections = await surroundings.for_path(path, thread_id=call.thread_id)
        told = tuple(TextBlock(render_section(section)) for section in sections)
        return replace(outcome, content=(*outcome.content, *told)) if told else outcome

    def traits(given: Mapping[str, object]) -> Traits:
        own = tool.traits(given)
        return replace(own, max_chars=own.max_chars + _ROOM)

    return replace(tool, run=run, traits=traits)
