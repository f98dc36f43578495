"""One session's bash in a test, in whatever sandbox it runs."""

from pathlib import Path

import anyio

from mainspring.capabilities.tools.shell import bash
from mainspring.core.content import plain_text
from mainspring.core.ports import Sandbox
from mainspring.core.tool import Call, Tool, ToolResult


def judge(command: str) -> tuple[bool, bool]:
    first = command.split(maxsplit=1)[0]
    return first in ("ls", "cat", "echo", "cd", "pwd", "grep"), first == "rm"


class Session:
    """One session's bash, called as the harness calls it."""

    def __init__(self, sandbox: Sandbox, root: Path, *, resumed: bool = False) -> None:
        self.sandbox, self.root = sandbox, root
        self.tool: Tool = bash(sandbox, judge=judge, default_seconds=20, resumed=resumed)
        self.said: list[str] = []
        self.count = 1000 if resumed else 0  # keys are never used twice

    def call(self, **given: object) -> Call:
        self.count += 1
        return Call(
            id=f"call_{self.count}",
            name="bash",
            input=given,
            idempotency_key=f"key_{self.count}",
            session_id="sesn_1",
            thread_id="sthr_1",
            say=self.said.append,
        )

    async def outcome(self, command: str, **given: object) -> ToolResult:
        with anyio.fail_after(60):
            return await self.tool.run(self.call(command=command, **given))

    async def text(self, command: str, **given: object) -> str:
        return plain_text((await self.outcome(command, **given)).content)
