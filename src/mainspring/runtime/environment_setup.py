"""An agent that finds out what a repository needs, and the tool that proves it by running the
repository's tests in a clean checkout, in the same sandbox as sessions. Only a proven environment
is saved, even if the agent claims otherwise."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import CapturedOutput, ExecRequest, Sandbox
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.runtime.agent import Agent
from mainspring.runtime.saved_environments import (
    FILES,
    WITH_SERVICES,
    EnvironmentPlan,
    SavedEnvironment,
    SavedEnvironments,
)

TOOL = "environment_test"
REQUEST = "Set up the environment of this repository."
_SHOWN = 4000  # characters of a program's output
_INSTRUCTIONS = f"""\
You find out what a repository needs so that its tests run in a sandbox, and prove it with {TOOL}.
Read what the repository says about itself: its manifests and lock files, its CI configuration, its
README. Then call {TOOL}. It checks out the last commit, installs the packages, runs the setup
commands, starts the services and runs the test command. If it fails, read why, correct the plan and
try again. Stop as soon as it passes, and say in two sentences what the environment has.
- The sandbox has no network: name packages under pip, npm and apt; do not install them in setup.
- Take versions from lock files. Add what only the tests need.
- setup is for files that the tests need and the repository does not contain: generated code.
- The test command is the one that the repository's own CI or documentation uses. A command that
  runs no tests proves nothing.
- If the tests cannot pass here, say why, and which of them do.
"""


class TrialResult(Struct, frozen=True, kw_only=True):
    is_ok: bool
    output: str
    """The beginning and the end of its output."""


class PlanTrial(Protocol):
    """A clean checkout in a sandbox with the packages of a plan."""

    @property
    def workspace(self) -> Path: ...

    async def run(self, command: str) -> TrialResult:
        """Raises: SandboxFailed."""
        ...


@dataclass(frozen=True, slots=True)
class CheckoutTrial:
    """A `Trial`."""

    sandbox: Sandbox
    workspace: Path
    seconds: int
    read_output: Callable[[CapturedOutput], str]

    async def run(self, command: str) -> TrialResult:
        argv = ("bash", "--noprofile", "--norc", "-c", f"exec 2>&1; {command}")
        result = await self.sandbox.run(
            ExecRequest(key=ids.new_id("env"), argv=argv, wall_seconds=self.seconds)
        )
        output = self.read_output(result.stdout)
        if result.stop_cause:
            output += f"\n[stopped: {result.stop_cause}]"
        return TrialResult(is_ok=result.status == 0, output=output)


OpenTrial: TypeAlias = Callable[[SavedEnvironment], AbstractAsyncContextManager[PlanTrial]]
"""Takes the environment to prove. Raises: ToolEnvironmentError: its packages cannot be installed,
there is no sandbox, or no commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSetup:
    repository: Path
    """The path with links resolved."""
    environments: SavedEnvironments
    open_trial: OpenTrial
    clock: Clock
    test: str | None = None
    """The test command, if the user names it; otherwise the agent proposes one."""

    def agent(self, base: Agent) -> Agent:
        """The agent for the session, with the model of `base`."""
        instructions = _INSTRUCTIONS
        if self.test is not None:
            instructions += f"- The test command is given: {self.test}\n"
        return Agent(
            name="environment-setup",
            instructions=instructions,
            model=base.model,
            limits=base.limits,
            effort=base.effort,
            built_ins=("read", "glob", "grep"),
            tools=(self.tool(),),
        )

    def tool(self) -> Tool:
        @tool(name=TOOL, in_doubt="retry")
        async def environment_test(call: Call, plan: EnvironmentPlan) -> ToolResult:
            """Prove an environment: check out the last commit, install packages, run setup and the
            tests beside the services. It is saved if the tests pass.

            Args:
                plan: pip, npm, apt: names of packages, with or without a version. services:
                    programs that the tests need beside them; ready is a command that succeeds once
                    the service can be used. setup: commands that make files which the tests need.
                    test: the command that runs the repository's tests.
            """
            plan = replace(plan, test=self.test or plan.test)
            return await self._prove(plan, call)

        return environment_test

    async def _prove(self, plan: EnvironmentPlan, call: Call) -> ToolResult:
        try:
            folder = await to_thread.run_sync(
                self.environments.begin, self.repository, plan, ids.new_id("env")
            )
            saved = SavedEnvironment(
                repository=str(self.repository),
                plan=plan,
                folder=str(folder),
                session_id=call.session_id,
                saved_at=self.clock(),
            )
            async with self.open_trial(saved) as trial:
                proof = await _run_plan(trial, saved)
        except (InvalidInput, ToolEnvironmentError) as error:
            return ToolResult.text(str(error), ok=False, error="failed")
        if isinstance(proof, str):
            return ToolResult.text(proof, ok=False, error="failed")
        await to_thread.run_sync(self.environments.save, proof)
        return ToolResult.text(f"The tests passed; the environment is saved.\n{proof.test_output}")


async def _run_plan(trial: PlanTrial, saved: SavedEnvironment) -> SavedEnvironment | str:
    """The proven environment, or why it is not proven."""
    before = await to_thread.run_sync(_paths, trial.workspace)
    for command in saved.plan.setup:
        result = await trial.run(command)
        if not result.is_ok:
            return f"The setup command failed: {command}\n{result.output[-_SHOWN:]}"
    files = await to_thread.run_sync(_new_paths, trial.workspace, before)
    if files:
        packed = await trial.run(shlex.join(("tar", "--create", "--file", FILES, "--", *files)))
        if not packed.is_ok:
            return f"The files that setup created cannot be stored: {packed.output[-_SHOWN:]}"
        await to_thread.run_sync(shutil.move, trial.workspace / FILES, saved.archive)
    result = await trial.run(shlex.join((WITH_SERVICES, "bash", "-c", saved.plan.test)))
    if not result.is_ok:
        return f"The tests failed: {saved.plan.test}\n{result.output[-_SHOWN:]}"
    return replace(saved, files=tuple(files), test_output=result.output[-_SHOWN:])


def _paths(folder: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(place, name), folder)
        for place, folders, files in os.walk(folder)
        for name in (*folders, *files)
    }


def _new_paths(folder: Path, before: set[str]) -> list[str]:
    """The topmost new paths: a new folder includes everything in it."""
    paths: list[str] = []
    for place, folders, files in os.walk(folder):
        inside = os.path.relpath(place, folder)
        names = {name: os.path.normpath(os.path.join(inside, name)) for name in (*folders, *files)}
        new = [name for name, path in names.items() if path not in before]
        paths += [names[name] for name in new]
        folders[:] = [name for name in folders if name not in new]
    return sorted(paths)
