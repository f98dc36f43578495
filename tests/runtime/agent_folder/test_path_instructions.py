"""What holds for a file comes with the call that touches it: once, and again after a compaction."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath

import pytest
from tests.at_once import at_once
from tests.harness.session_setup import stage
from tests.written_files import write_file

from mainspring.capabilities.providers.scripted import (
    ScriptAnswer,
    Scripted,
    ScriptLine,
    calls,
    says,
)
from mainspring.capabilities.tools.file_tools import file_tools
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.events import ContextCompacted
from mainspring.core.model import Message, Request, ToolResultBlock, User
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.context.instruction_files import InstructionFiles, InstructionRoots
from mainspring.harness.context.instructions import Section, load, render
from mainspring.harness.context.prompts import system_prompt
from mainspring.harness.context.request_builder import PromptPrefix, build_request
from mainspring.harness.state.thread import fold
from mainspring.runtime.agent_folder.folder_instructions import (
    PathInstructions,
    with_path_instructions,
)

SMALL = ModelFacts(id="scripted:small", window=32_000, max_output=4_000)
NESTED = '<instructions source="app/AGENTS.md" scope="project">\nnested\n</instructions>'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for place, text in {
        "AGENTS.md": "root",
        "rules/py.md": "---\npaths: ['**/*.py']\n---\ntyped",
        "app/AGENTS.md": "nested",
        "app/.claude/rules/web.md": "---\npaths: ['web/**']\n---\npretty",
        "app/a.py": "a",
        "app/web/b.py": "b",
        "c.txt": "c",
    }.items():
        path = root / place
        write_file(path, text)
    return root


def path_instructions(root: Path, **more: object) -> PathInstructions:
    at = PurePosixPath(root)
    places = InstructionRoots(project=at, cwd=at, agent=at)
    return PathInstructions(places, **more)  # pyright: ignore[reportArgumentType] (keywords of it, by name)


async def shown_sources(
    surroundings: PathInstructions, path: str, thread_id: str = ""
) -> list[str]:
    return [item.source for item in await surroundings.for_path(path, thread_id=thread_id)]


async def test_nested_files_and_scoped_rules_apply_to_a_file_below_them(project: Path):
    surroundings = path_instructions(project)
    assert await shown_sources(surroundings, "c.txt") == []
    assert await shown_sources(surroundings, "app/a.py") == ["app/AGENTS.md", "rules/py.md"]
    deeper = (project / "app/web/b.py").as_posix()
    assert await shown_sources(surroundings, deeper) == ["app/.claude/rules/web.md"]


async def test_a_section_is_shown_once_to_each_thread_until_compaction(project: Path):
    surroundings = path_instructions(project)
    both = ["app/AGENTS.md", "rules/py.md"]
    assert await shown_sources(surroundings, "app/a.py", "one") == both
    assert await shown_sources(surroundings, "app/a.py", "one") == []
    assert await shown_sources(surroundings, "app/a.py", "two") == both
    surroundings.forget("one")
    assert await shown_sources(surroundings, "app/a.py", "one") == both
    assert await shown_sources(surroundings, "app/a.py", "two") == []
    surroundings.forget()
    assert await shown_sources(surroundings, "app/a.py", "two") == both


async def test_concurrent_calls_show_a_section_once(project: Path):
    surroundings = path_instructions(project)
    sections = await at_once(
        lambda path: shown_sources(surroundings, path), ("app/a.py", "app/x.py", "app/y.py")
    )
    assert sorted(chain(*sections)) == ["app/AGENTS.md", "rules/py.md"]


async def test_files_outside_the_project_have_no_instructions(project: Path, tmp_path: Path):
    write_file(tmp_path / "x/AGENTS.md", "foreign")
    (project / "out").symlink_to(tmp_path / "x")
    for path in ("../x/a.py", (tmp_path / "x/a.py").as_posix(), "out/a.py"):
        assert await shown_sources(path_instructions(project), path) == []


async def test_reading_an_instruction_file_does_not_add_the_file_itself(project: Path):
    surroundings = path_instructions(project)
    assert await shown_sources(surroundings, "app/AGENTS.md") == []
    assert await shown_sources(surroundings, "app/b.txt") == ["app/AGENTS.md"]


async def test_additional_sources_can_add_sections_for_a_path(project: Path):
    def bring(path: str) -> Iterable[Section]:
        return [Section("skill:text", "write well")] if path.endswith(".txt") else []

    surroundings = path_instructions(project, also=[bring])
    assert await shown_sources(surroundings, "c.txt") == ["skill:text"]
    assert await shown_sources(surroundings, "c.txt") == []


async def test_sections_over_the_size_limit_come_with_the_next_call(project: Path):
    for name in ("x", "y"):
        (project / f"app/.claude/rules/{name}.md").write_text("word " * 5000)
    surroundings = path_instructions(project)
    assert await shown_sources(surroundings, "app/b.txt") == [
        "app/AGENTS.md",
        "app/.claude/rules/x.md",
    ]
    assert await shown_sources(surroundings, "app/b.txt") == ["app/.claude/rules/y.md"]


async def test_a_nested_file_cannot_import_a_hidden_file(project: Path):
    (project / ".env").write_text("secret")
    (project / "app/CLAUDE.md").write_text("x @../.env")
    hidden = InstructionFiles(is_hidden=lambda path: path.name == ".env")
    found = await path_instructions(project, instruction_files=hidden).for_path("app/b.txt")
    assert [item.source for item in found] == ["app/AGENTS.md", "app/CLAUDE.md"]


def tools_on(project: Path, surroundings: PathInstructions) -> dict[str, Tool]:
    tools = file_tools(FolderWorkspace(project), lambda: None)
    return {tool.spec.name: with_path_instructions(tool, surroundings) for tool in tools}


def call(name: str, **given: object) -> Call:
    return Call(id="1", name=name, input=given, idempotency_key="1", session_id="s", thread_id="t")


async def test_a_tool_result_is_followed_by_the_instructions_for_its_file(project: Path):
    tools = tools_on(project, path_instructions(project))
    assert (
        tools["read"].traits({}).max_chars
        > file_tools(FolderWorkspace(project), lambda: None)[3].traits({}).max_chars
    )
    missing = await tools["read"].run(call("read", file_path="app/gone.py"))
    assert not missing.ok
    assert len(missing.content) == 1
    written = await tools["write"].run(call("write", file_path="app/new.txt", content="x"))
    assert plain_text(written.content) == f"Created app/new.txt with 1 lines.\n{NESTED}"
    first = await tools["read"].run(call("read", file_path="app/a.py"))
    assert plain_text(first.content).endswith("typed\n</instructions>")
    again = await tools["read"].run(call("read", file_path="app/a.py"))
    assert again.content == first.content[:1]
    found: ToolResult = await tools["glob"].run(call("glob", pattern="**/*.py"))
    assert len(found.content) == 1


def results_of(messages: Iterable[Message]) -> str:
    return "\n".join(
        plain_text(part.content)
        for message in messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, ToolResultBlock)
    )


class Reader:
    """Reads so many files, then is done; summarizes when it is asked to."""

    def __init__(self, files: int) -> None:
        self._steps = self._work(files)

    def __call__(self, request: Request) -> ScriptAnswer:
        first = request.messages[0].content[0]
        is_summary = isinstance(first, TextBlock) and "<conversation>" in first.text
        return says("They were read.") if is_summary else next(self._steps)

    def _work(self, files: int) -> Iterator[ScriptLine]:
        for number in range(files):
            yield calls("read", file_path=f"app/{number}.txt")
        yield says("Done.")


async def test_after_a_compaction_nested_instructions_are_shown_again(
    project: Path, tmp_path: Path
):
    for number in range(40):
        (project / f"app/{number}.txt").write_text(f"{number} " * 3000)
    surroundings = path_instructions(project)
    tools = tools_on(project, surroundings)
    at, model = PurePosixPath(project), Scripted(otherwise=Reader(40))
    instructions = render(load(InstructionFiles(), InstructionRoots(project=at, cwd=at)))
    async with stage(tmp_path, model, *tools.values(), facts=SMALL) as play:
        await play.play("Read them all.")
        log = await play.events()
    assert NESTED in results_of(model.requests[1].messages)
    assert any(isinstance(event.payload, ContextCompacted) for event in log)
    thread = fold(log, thread_id=log[0].thread_id)
    prefix = PromptPrefix(model=SMALL.id, system=system_prompt(instructions=instructions), tools=())
    seen = build_request(thread, prefix, max_tokens=1)
    assert '<instructions source="AGENTS.md" scope="project">\nroot\n' in seen.system[0]
    assert NESTED not in results_of(seen.messages)
    surroundings.forget()
    again = await tools["read"].run(call("read", file_path="app/1.txt"))
    assert plain_text(again.content).endswith(NESTED)
