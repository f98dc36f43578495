"""Commands of chat that show or change the set-up: rules, hooks, folders, effort, style, tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import events
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Effort, PermissionUpdate
from mainspring.edges.cli.agent_files.policy import explain
from mainspring.edges.cli.operate.doctor import doctor
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.run.terminal_input import Keyboard
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.output_styles import DEFAULT_STYLE, find_style, output_styles
from mainspring.runtime.session.session import Session
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.agent_selection import agent_selection

PROMPTS = {
    "init": (
        "Look at this repository and write AGENTS.md for agents that will work in it (improve it"
        " if it exists): how to build, test and run it, its structure, and conventions that one"
        " cannot see from a single file. Leave out what is obvious. {}"
    ),
    "review": (
        "Review the changes in this working copy (git status, git diff; if there are none, those"
        " of the current branch). Report mistakes, risks and missing tests with file and line,"
        " the most serious first, and change nothing. {}"
    ),
}
"""Commands that are messages to the agent."""
_MARKS = {"pending": "☐", "in_progress": "▶", "completed": "☑", "failed": "✗"}
_TASK_EVENTS = event_types(events.TaskWritten)


@dataclass(frozen=True, slots=True)
class ChatSetup:
    settings: Settings
    notes: Screen
    keyboard: Keyboard
    loaded_policy: LoadedPolicy
    agent: Agent
    session: Session | None
    folder: Path

    async def run(self, name: str, arguments: str) -> Agent | None:
        """Returns the agent to continue with, if it is another one.

        Raises: InvalidInput: the arguments are not valid.
        """
        commands: dict[str, Callable[[str], Awaitable[Agent | None]]] = {
            "config": self._config,
            "permissions": self._permissions,
            "hooks": self._hooks,
            "add-dir": self._add_folder,
            "effort": self._effort,
            "output-style": self._style,
            "vim": self._vim,
            "todos": self._todos,
            "doctor": self._doctor,
        }
        return await commands[name](arguments)

    async def _config(self, _: str) -> None:
        loaded = self.loaded_policy
        rows = (
            ("model", self.agent.model, "/model"),
            ("effort", self.agent.effort, "/effort"),
            ("mode of new sessions", loaded.policy.mode or "default", "/mode"),
            ("folder", str(self.folder), "/add-dir"),
            ("folder is trusted", "yes" if loaded.is_trusted else "no", "mainspring policy trust"),
            ("output style", loaded.preferences.output_style or DEFAULT_STYLE, "/output-style"),
            ("memory", self.agent.memory, "/memory"),
            ("store", self.settings.store_label, "MAINSPRING_STORE"),
            ("theme", "light" if self.settings.is_light else "dark", "MAINSPRING_THEME"),
        )
        self.notes.table(
            ("SETTING", "VALUE", "CHANGE IT WITH"),
            [[(name, "bold"), (value, ""), (change, "dim")] for name, value, change in rows],
        )
        hint = (
            "rules, hooks and preferences are in .mainspring/settings.json and settings.local.json"
        )
        self.notes.paragraph((hint, "dim"))

    async def _permissions(self, _: str) -> None:
        await explain(replace(self.settings, folder=str(self.folder)))
        hint = "mainspring policy check says what happens to a call; answer `a` adds a rule"
        self.notes.paragraph((hint, "dim"))

    async def _hooks(self, _: str) -> None:
        rows = [
            [(hooks.scope, "dim"), (event, "bold"), (hooks.source, "")]
            for hooks in self.loaded_policy.hooks
            for event in hooks.hooks
        ]
        if rows:
            self.notes.table(("SCOPE", "EVENT", "FILE"), rows)
        else:
            self.notes.paragraph(("no hooks apply here; docs/hooks.md says how to add one", "dim"))
        if not self.loaded_policy.is_trusted:
            untrusted = (
                "hooks of this folder do not run until you trust it: mainspring policy trust"
            )
            self.notes.paragraph((untrusted, "yellow"))

    async def _add_folder(self, name: str) -> None:
        if not name:
            raise InvalidInput("name a folder: /add-dir ../shared")
        if self.session is None:
            raise InvalidInput("send a message first: a folder is added to a session")
        folder = await to_thread.run_sync(_existing_folder, self.folder, name)
        update = PermissionUpdate(type="addDirectories", directories=(str(folder),))
        await self.session.permit(update)
        self.notes.paragraph((f"file tools may work in {folder} in this session", "dim"))

    async def _effort(self, name: str) -> Agent | None:
        levels: dict[str, Effort] = {level: level for level in get_args(Effort)}
        if not name:
            text = f"effort {self.agent.effort}; /effort {'|'.join(levels)} changes it"
            self.notes.paragraph((text, ""))
            return None
        if name not in levels:
            raise InvalidInput(f"effort is one of {', '.join(levels)}")
        self.notes.paragraph((f"effort {name} from the next message on", "dim"))
        return replace(self.agent, effort=levels[name])

    async def _style(self, name: str) -> Agent | None:
        scopes = agent_selection(self.settings).scopes()
        if not name:
            for style in await to_thread.run_sync(lambda: list(output_styles(scopes))):
                about = f"  {style.description}" if style.description else ""
                self.notes.line((f"  {style.name}", "bold"), (about, ""))
            return None
        style = await to_thread.run_sync(find_style, scopes, name)
        if style is None:
            raise InvalidInput(f"there is no output style {name}; /output-style lists them")
        self.notes.paragraph((f"output style {style.name} from the next message on", "dim"))
        instructions = f"{self.agent.instructions}\n\n{style.rendered}".strip()
        return replace(self.agent, instructions=instructions)

    async def _vim(self, _: str) -> None:
        if self.keyboard.loop is None:
            raise InvalidInput("this terminal has no line editor")
        keys = "vi" if self.keyboard.loop.toggle_vi() else "Emacs"
        self.notes.paragraph((f"keys of {keys}", "dim"))

    async def _todos(self, _: str) -> None:
        tasks: dict[str, events.Task] = {}
        if self.session is not None:
            for event in await self.session.log.read(self.session.id, types=_TASK_EVENTS):
                if isinstance(event.payload, events.TaskWritten):
                    tasks[event.payload.task.id] = event.payload.task
        rows = [task for task in tasks.values() if task.status != "deleted"]
        for task in rows:
            self.notes.line((f"  {_MARKS.get(task.status, ' ')} ", "bold"), (task.subject, ""))
        if not rows:
            self.notes.paragraph(("the agent has no tasks on its list", "dim"))

    async def _doctor(self, _: str) -> None:
        await doctor(self.settings)


def _existing_folder(base: Path, name: str) -> Path:
    """Raises: InvalidInput."""
    folder = (base / Path(name).expanduser()).resolve()
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    return folder


SETUP_COMMANDS = (
    "config", "permissions", "hooks", "add-dir", "effort", "output-style", "vim", "todos", "doctor",
)  # fmt: skip
