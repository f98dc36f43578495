"""File tools over a real workspace, called as the harness calls them."""

from dataclasses import dataclass, replace
from pathlib import Path

from mainspring.capabilities.tools.file_tools import file_tools
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.content import plain_text
from mainspring.core.tool import Call, Tool, ToolResult


@dataclass(frozen=True)
class FileDesk:
    root: Path
    tools: dict[str, Tool]

    def call(self, name: str, **arguments: object) -> Call:
        return Call(
            id="call_1",
            name=name,
            input=arguments,
            idempotency_key="key_1",
            session_id="sesn_1",
            thread_id="sthr_1",
        )

    async def do(self, name: str, **arguments: object) -> str:
        """What the model reads of a call that goes well."""
        outcome = await self.outcome(name, **arguments)
        assert outcome.ok, plain_text(outcome.content)
        return plain_text(outcome.content)

    async def fail(self, name: str, **arguments: object) -> str:
        """What the model reads of one that does not; the gates would have heard the same."""
        call, tool = self.call(name, **arguments), self.tools[name]
        outcome = await tool.run(call)
        assert not outcome.ok
        assert outcome.error in ("invalid", "failed")
        told = plain_text(outcome.content)
        if name in ("write", "edit"):
            assert tool.objection is not None
            assert await tool.objection(call) == told
        return told

    async def outcome(self, name: str, **arguments: object) -> ToolResult:
        call, tool = self.call(name, **arguments), self.tools[name]
        assert tool.invalid(call.input) is None
        assert tool.objection is not None
        assert await tool.objection(call) is None
        return await tool.run(call)

    async def preview(self, name: str, **arguments: object) -> str | None:
        preview = self.tools[name].preview
        assert preview is not None
        return await preview(self.call(name, **arguments))

    async def probe(self, name: str, **arguments: object) -> ToolResult | None:
        probe = self.tools[name].probe
        assert probe is not None
        assert self.tools[name].traits(arguments).in_doubt == "probe"
        return await probe(self.call(name, **arguments))

    def restarted(self) -> "FileDesk":
        """The same session after a crash."""
        return replace(self, tools=desk_over(self.root).tools)


def desk_over(root: Path, *, ripgrep: str | None = None) -> FileDesk:
    tree = FolderWorkspace(root, hidden=[".mainspring"])
    return FileDesk(root, {f.spec.name: f for f in file_tools(tree, lambda: ripgrep)})
