"""What chat says at its start at a terminal, in five lines: model, folder, rules, MCP servers, and
what will not work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.config import FOLDER, Settings
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.edges.cli.render.printing import Screen, plural
from mainspring.edges.cli.run.session_runner import SessionRunner
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.slash_commands import mode_of
from mainspring.wiring.mcp_servers import read_project_servers

_LABEL_WIDTH = 10  # columns
_MAX_NAMES = 5  # of servers; `/mcp` shows all


class ChatWelcome(Struct, frozen=True):
    settings: Settings
    folder: Path
    """The workspace."""
    runner: SessionRunner
    options: RunOptions

    @property
    def loaded(self) -> LoadedPolicy:
        return self.runner.loaded_policy

    async def show(self, notes: Screen) -> None:
        servers, problems = await to_thread.run_sync(self._servers)
        problems = [*self._trust_problems(), *problems, *await self._sandbox_problems()]
        rows = (
            ("model", f"{self.runner.agent.model} · {self.runner.agent.name} · /help"),
            ("folder", self._folder_text(notes.width)),
            ("rules", await self._rules_text()),
            ("servers", servers),
        )
        for label, text in rows:
            notes.line((label.ljust(_LABEL_WIDTH), "dim"), (text, ""))
        label = "problems".ljust(_LABEL_WIDTH)
        if problems:  # wraps: a fix that is cut off is of no use
            notes.paragraph((label, "yellow"), (" · ".join(problems), "yellow"))
        else:
            notes.line((label, "dim"), ("none known", ""))

    def _folder_text(self, width: int | None) -> str:
        """The folder, `~` for the home; in a narrow window its end."""
        folder, home = self.folder.resolve(), Path(self.settings.home).resolve()
        text = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
        room = None if width is None else max(width - _LABEL_WIDTH, 1)
        return text if room is None or len(text) <= room else f"…{text[1 - room :]}"

    async def _rules_text(self) -> str:
        mode = self.options.mode or self.loaded.policy.mode or "default"
        if (session := self.runner.session) is not None:
            mode = await mode_of(session.log, session.id)
        count = len(self.loaded.policy.rules)
        rules = plural(count, "rule") if count else "no rules"
        trust = "trusted" if self.loaded.is_trusted else "not trusted"
        return f"{trust} · {rules} · mode {mode}"

    def _trust_problems(self) -> list[str]:
        if self.loaded.is_trusted:
            return []
        return ["mainspring policy trust: until then its settings only restrict"]

    def _servers(self) -> tuple[str, list[str]]:
        """The names of the MCP servers, and why some are not used. Blocks."""
        try:
            settings = replace(self.settings, folder=str(self.folder))
            project = read_project_servers(settings, self.loaded)
        except InvalidInput as error:
            return "cannot be read", [f"/mcp: {error}"]
        names = [server.name for server in project.usable]
        unused = {server.name: project.unused_reason(server) for server in project.every}
        problems = [
            f"/mcp: {name} is not used, {reason}"
            for name, reason in unused.items()
            if reason not in (None, "disabled") and self.loaded.is_trusted
        ]
        if not names and unused:
            return f"none of {plural(len(unused), 'MCP server')} used · /mcp", problems
        if not names:
            return "no MCP servers · mainspring mcp add", problems
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return f"{', '.join(names[:_MAX_NAMES])}{more} · /mcp", problems

    async def _sandbox_problems(self) -> list[str]:
        if self.options.is_unsandboxed:
            return ["commands run without a sandbox, as you chose"]
        own = SandboxSettings(container_is_boundary=self.settings.container_is_boundary)
        try:
            cache = Path(self.settings.home, FOLDER, "sandboxes.json")
            backend = await select_backend(own, cache=cache)
        except SandboxFailed:
            return ["/doctor: commands cannot run, no sandbox holds"]
        if backend.level in ("isolated", "container"):
            return []
        return [f"/doctor: the sandbox does not fully contain commands ({backend.level})"]
