"""Subagents in worktrees of their own, with real git: merged, kept, discarded, asked about."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from tests.repositories import git, repository
from tests.runtime.subagents.scripted_threads import LEAD, newest, staged, troupe, turn_of

from mainspring import Runtime, tool
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, ScriptLine
from mainspring.core import clock
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentToolResult,
    ThreadCreated,
    ToolCallAuthorized,
    WorktreeClosed,
    WorktreeOpened,
)
from mainspring.core.events import ThreadMessageReceived as Received
from mainspring.core.model import Request
from mainspring.core.ports import ClosedWorktree, Worktree, Worktrees
from mainspring.core.tool import Tool
from mainspring.harness.permissions.call_analysis import CallLocation
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Mode, Policy, PolicyRule
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.session.session import Session
from mainspring.runtime.session_context import SetupRequest
from mainspring.testing import calls, says
from mainspring.wiring.worktrees import open_worktrees

P = TypeVar("P")
SECONDS = 60
SAVES = PolicyRule(text="save", behavior="allow")


def saving_tool(at: Path) -> Tool:
    @tool
    def save(name: str, text: str) -> str:
        """Write a file."""
        (at / name).write_text(text)
        return f"saved in {at.name}"

    return save


@dataclass
class Scene:
    """A repository, and sessions in it."""

    folder: Path
    mode: Mode = "acceptEdits"
    rules: tuple[PolicyRule, ...] = ()
    worktrees: Worktrees = field(init=False)

    def __post_init__(self) -> None:
        repository(self.workspace)
        self.worktrees = open_worktrees(self.workspace, self.folder / "place")

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    @property
    def text(self) -> str:
        return (self.workspace / "a.txt").read_text()

    @property
    def branches(self) -> list[str]:
        listed = git(self.workspace, "branch", "--format=%(refname:short)")
        return [item for item in listed.split() if item != "main"]

    @asynccontextmanager
    async def opened(self, model: Scripted) -> AsyncGenerator[Runtime]:
        async with staged(self.folder, model) as runtime:
            runtime.toolbox_factory = self.toolbox_factory
            yield runtime

    @asynccontextmanager
    async def toolbox_factory(self, opening: SetupRequest) -> AsyncGenerator[Toolbox]:
        at = opening.workspace or self.workspace
        mode = self.mode if opening.subagent is None else "acceptEdits"
        policy = Policy(workspace=str(at), rules=(SAVES, *self.rules), mode=mode)
        place = CallLocation(workspace=str(at), cwd=str(at), home="/", resolve=os.path.realpath)
        authorizer = PermissionEngine(
            thread=opening.thread,
            policy=policy,
            location=lambda: place,
            clock=clock.now,
            is_sandboxed=False,
        )
        toolbox = Toolbox(authorizer=authorizer, tools=[saving_tool(at)], worktrees=self.worktrees)
        yield replace(toolbox, for_thread=self.toolbox_factory)

    async def played(self, model: Scripted) -> list[Event]:
        async with self.opened(model) as runtime:
            session = await runtime.start(LEAD, "begin")
            await run(session)
            return await session.events()


async def run(session: Session) -> None:
    with anyio.fail_after(SECONDS):
        await session.run()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def of(events: list[Event], kind: type[P]) -> list[P]:
    return [event.payload for event in events if isinstance(event.payload, kind)]


def results(events: list[Event]) -> list[str]:
    """Of the main thread's calls, in the order they were settled."""
    main = events[0].thread_id
    return [
        plain_text(event.payload.content)
        for event in events
        if isinstance(event.payload, AgentToolResult) and event.thread_id == main
    ]


def ask(task: str, **more: object) -> ScriptLine:
    return calls(
        "agent", description=task, prompt=f"task {task}", **{"isolation": "worktree", **more}
    )


def close(to: str, action: str) -> ScriptLine:
    return calls("close_worktree", to=to, action=action)


def writes(text: str) -> Callable[[Request], ScriptAnswer]:
    def play(request: Request) -> ScriptAnswer:
        return says("wrote it") if turn_of(request) else calls("save", name="a.txt", text=text)

    return play


def in_turn(
    *answers: ScriptAnswer | Callable[[Request], ScriptAnswer],
) -> Callable[[Request], ScriptAnswer]:
    def play(request: Request) -> ScriptAnswer:
        answer = answers[min(turn_of(request), len(answers) - 1)]
        return answer(request) if callable(answer) else answer

    return play


async def test_the_second_merge_of_concurrent_edits_conflicts(scene: Scene):
    known: list[str] = []

    def first(request: Request) -> ScriptAnswer:
        known[:] = [word.rstrip(":") for word in newest(request).split() if "sthr_" in word]
        return close(known[0], "merge")

    model = troupe(
        {
            "begin": in_turn(
                ask("uno") + ask("due"), first, lambda _: close(known[1], "merge"), says("so be it")
            ),
            "task uno": writes("uno\n"),
            "task due": writes("due\n"),
        }
    )
    events = await scene.played(model)
    _, _, merged, kept = results(events)
    assert merged.startswith("Merged into the workspace")
    assert "conflicts with the workspace in a.txt" in kept
    [branch] = scene.branches
    assert branch in kept
    assert scene.text in ("uno\n", "due\n")
    assert {scene.text.strip(), git(scene.workspace, "show", f"{branch}:a.txt")} == {"uno", "due"}
    assert [item.outcome for item in of(events, WorktreeClosed)] == ["merged", "kept"]
    for report in results(events)[:2]:
        assert "1 file changed: a.txt. close_worktree merges or discards it.]" in report


async def test_a_worktree_without_changes_is_removed(scene: Scene):
    model = troupe(
        {
            "begin": in_turn(ask("look"), close("general", "merge"), says("ok")),
            "task look": in_turn(says("seen")),
        }
    )
    events = await scene.played(model)
    report, closed = results(events)
    assert "worktree" not in report
    assert "has no open worktree" in closed
    [opened], [fact] = of(events, WorktreeOpened), of(events, WorktreeClosed)
    assert (fact.outcome, fact.path) == ("discarded", opened.path)
    assert scene.branches == []
    own = [event.type for event in events if event.thread_id != events[0].thread_id]
    assert own[:2] == ["worktree.opened", "agent.thread_message_received"]


async def test_a_discarded_worktree_never_reaches_the_workspace(scene: Scene):
    model = troupe(
        {
            "begin": in_turn(ask("write"), close("general", "discard"), says("ok")),
            "task write": writes("nonsense\n"),
        }
    )
    assert results(await scene.played(model))[1] == "Discarded."
    assert (scene.text, scene.branches) == ("one\n", [])


async def test_without_a_commit_the_call_fails_and_no_subagent_starts(scene: Scene):
    git(scene.workspace, "update-ref", "-d", "HEAD")
    model = troupe({"begin": in_turn(ask("write"), says("ok")), "task": writes("x")})
    events = await scene.played(model)
    assert "has no commit yet" in results(events)[0]
    assert of(events, ThreadCreated) == []


async def test_a_background_subagent_reports_its_worktree_and_continues_in_a_new_one(scene: Scene):
    """After a merge, a message wakes it in a worktree of what has become of the workspace."""

    def again(request: Request) -> ScriptAnswer:
        return calls("save", name="c.txt", text="more\n") if "more" in newest(request) else says("")

    model = troupe(
        {
            "begin": in_turn(
                ask("write", run_in_background=True),
                says("I wait."),
                close("general", "merge"),
                calls("send_message", to="general", message="do more"),
                says("I wait again."),
                close("general", "merge"),
                says("ok"),
            ),
            "task write": in_turn(
                calls("save", name="a.txt", text="changed\n"),
                says("done"),
                again,
                says("done again"),
            ),
        }
    )
    events = await scene.played(model)
    heard = [plain_text(item.content) for item in of(events, Received)]
    assert any("1 file changed: a.txt." in item for item in heard)
    assert any("1 file changed: c.txt." in item for item in heard)
    assert [item.outcome for item in of(events, WorktreeClosed)] == ["merged", "merged"]
    first, second = of(events, WorktreeOpened)
    assert first.commit != second.commit
    assert (scene.text, (scene.workspace / "c.txt").read_text()) == ("changed\n", "more\n")
    assert scene.branches == []


async def test_subagents_called_from_a_worktree_share_it(scene: Scene):
    model = troupe(
        {
            "begin": in_turn(ask("outer"), close("general", "merge"), says("ok")),
            "task outer": in_turn(
                ask("inner"),
                ask("inner", isolation="shared"),
                lambda request: says(newest(request)),
            ),
            "task inner": writes("from within\n"),
        }
    )
    events = await scene.played(model)
    refusals = [plain_text(item.content) for item in of(events, AgentToolResult)]
    assert any("You work in a worktree yourself" in refusal for refusal in refusals)
    assert len(of(events, WorktreeOpened)) == 1
    assert scene.text == "from within\n"


MERGING = {
    "begin": in_turn(ask("write"), close("general", "merge"), says("ok")),
    "task write": writes("changed\n"),
}


async def test_merging_needs_approval_that_shows_the_changed_files(scene: Scene):
    scene.mode = "default"
    async with scene.opened(troupe(MERGING)) as runtime:
        session = await runtime.start(LEAD, "begin")
        with anyio.fail_after(SECONDS):
            result = await session.run()
        assert result is not None
        [waiting] = result.waiting_for
        asked = of(await session.events(), ToolCallAuthorized)[-1]
        assert asked.preview == "Merge into the workspace: a.txt"
        assert scene.text == "one\n"
        await session.answer(waiting, "allow")
        await run(session)
    assert scene.text == "changed\n"


@pytest.mark.parametrize(
    ("mode", "rule", "why"),
    [
        ("plan", "Edit(/c.txt)", "the mode plan allows no changes"),
        ("acceptEdits", "Edit(/a.txt)", "Edit(/a.txt) denies it"),
        ("bypassPermissions", "Edit(/a.txt)", "Edit(/a.txt) denies it"),
    ],
)
async def test_protected_files_are_not_merged(scene: Scene, mode: Mode, rule: str, why: str):
    scene.mode = mode
    scene.rules = (PolicyRule(text=rule, behavior="deny"),)
    assert why in results(await scene.played(troupe(MERGING)))[1]
    assert scene.text == "one\n"


async def test_discarding_a_worktree_needs_no_approval(scene: Scene):
    scene.mode = "plan"
    parts = {**MERGING, "begin": in_turn(ask("write"), close("general", "discard"), says("ok"))}
    assert results(await scene.played(troupe(parts)))[1] == "Discarded."


class ProcessKilled(BaseException):
    pass


@dataclass
class MortalGit:
    """Dies once, right after it has done one of these."""

    inner: Worktrees
    last: str

    def live(self, act: str) -> None:
        if act == self.last:
            self.last = ""
            raise ProcessKilled

    async def open(self, name: str) -> Worktree:
        opened = await self.inner.open(name)
        self.live("open")
        return opened

    async def close(self, worktree: Worktree, *, merge: bool, message: str) -> ClosedWorktree:
        closed = await self.inner.close(worktree, merge=merge, message=message)
        self.live("close")
        return closed

    async def changes(self, worktree: Worktree) -> list[str]:
        changed = await self.inner.changes(worktree)
        self.live("changes")
        return changed


@pytest.mark.parametrize(
    ("last", "is_background"),
    [("open", False), ("changes", False), ("changes", True), ("close", False)],
)
async def test_work_is_merged_once_after_a_kill_during_git(
    scene: Scene, last: str, is_background: bool
):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("write", run_in_background=is_background)
        if "is at work" in newest(request):
            return says("I wait.")
        return close("general", "merge") if scene.text == "one\n" else says("ok")

    scene.worktrees = MortalGit(scene.worktrees, last)
    async with scene.opened(troupe({**MERGING, "begin": lead})) as runtime:
        session = await runtime.start(LEAD, "begin")
        with pytest.raises(ProcessKilled):
            await run(session)
        session = await runtime.resume(LEAD, session.id)
        await run(session)
        events = await session.events()
    assert (scene.text, scene.branches) == ("changed\n", [])
    assert len(git(scene.workspace, "log", "--merges", "--format=%h").split()) == 1
    assert [item.outcome for item in of(events, WorktreeClosed)] == ["merged"]
    told = [*results(events), *(plain_text(item.content) for item in of(events, Received))]
    assert sum("1 file changed: a.txt." in item for item in told) == 1


async def test_a_fork_of_the_session_does_not_share_its_worktrees(scene: Scene):
    model = troupe({**MERGING, "begin": in_turn(ask("write"), says("later"))})
    async with scene.opened(model) as runtime:
        session = await runtime.start(LEAD, "begin")
        await run(session)
        forked = await session.fork()
        await forked.send("go on")
        await run(forked)
        main = ThreadTree.of(await forked.events(), (await forked.events())[0].thread_id)
    assert [node.worktree for node in main.nodes.values()] == [None, None]
    assert len(scene.branches) == 1
