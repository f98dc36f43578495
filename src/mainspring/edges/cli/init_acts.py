"""What `mainspring init` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.model_discovery import find_models
from mainspring.edges.cli.printing import Screen
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.rule_descriptions import MODE_DESCRIPTIONS
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.runtime.agent_folder.folder_versions import Version, record_version
from mainspring.runtime.agent_folder.new_agent import NewAgent, check_no_agent, write_agent
from mainspring.runtime.settings.project_trust import is_trusted
from mainspring.wiring.builtin_tools import ALL_TOOLS, BUILTIN_TOOL_NAMES
from mainspring.wiring.model_registry import OFFLINE_MODEL, default_model
from mainspring.wiring.name_checks import missing_model_reason
from mainspring.wiring.settings_files import read_project_files, trust

_PURPOSE = "Helps with the work in this folder."
_ANY_MODEL = "whichever there is where it runs"
_ALL_TOOLS = "all"
_READ_TOOLS = "read,glob,grep"
_TOOLS = {_ALL_TOOLS: "files, commands in a sandbox, the web", _READ_TOOLS: "it only looks"}
_MODES = ("default", "acceptEdits", "plan", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """What was said on the command line; `None`: nothing."""

    name: str | None = None
    purpose: str | None = None
    model: str | None = None
    tools: str | None = None
    mode: str | None = None
    is_asked: bool = True


async def init(
    settings: Settings, *, folder: str | None, init_options: InitOptions, json: bool
) -> int:
    """Raises: InvalidInput."""
    place = _target_folder(settings, folder)
    if init_options.is_asked and not sys.stdin.isatty():
        nobody = InvalidInput("there is no terminal to ask at: nothing was written")
        nobody.add_note(
            "--yes takes what is usual; --name, --purpose, --model, --tools, --mode say"
        )
        raise nobody
    check_no_agent(place)  # before anybody is asked anything
    http_client = _Prompter(Screen(settings, stderr=True), is_asked=init_options.is_asked)
    plan = await _plan(settings, place, init_options, http_client)
    files, version = await to_thread.run_sync(_create_files, settings, place, plan)
    screen = Screen(settings)
    if json:
        said = {"folder": str(place), "files": [item.name for item in files], **_plan_json(plan)}
        screen.json(msgspec.json.encode({**said, "version": version.number}))
        return 0
    for file in files:
        screen.line(("made ", "green"), (str(file), "bold"))
    notes = Screen(settings, stderr=True)
    if plan.model is None and default_model(settings) == OFFLINE_MODEL:
        offline = "no key and no local server: it runs with the offline model for now"
        notes.paragraph((offline, "yellow"))
    where = f"cd {folder} && " if folder else ""
    notes.paragraph((f"run it: {where}mainspring run 'what can you do?'", "dim"))
    return 0


def _target_folder(settings: Settings, folder: str | None) -> Path:
    return Path(os.path.realpath(Path(settings.folder, folder or ".")))


def _create_files(
    settings: Settings, place: Path, new_agent: NewAgent
) -> tuple[list[Path], Version]:
    home = Path(settings.home)
    was_trusted = is_trusted(place, read_project_files(place, home=home), home=home)
    files = write_agent(place, new_agent)
    if was_trusted:
        trust(place, home=home)  # whoever has just said it has vouched for it
    return files, record_version(place, clock.now)


def _plan_json(new_agent: NewAgent) -> Mapping[str, object]:
    return {
        "name": new_agent.name,
        "model": new_agent.model,
        "tools": new_agent.tools,
        "mode": new_agent.mode,
    }


async def _plan(
    settings: Settings, place: Path, init_options: InitOptions, prompter: _Prompter
) -> NewAgent:
    name = init_options.name or prompter.ask_line("Name", place.name or "agent")
    purpose = init_options.purpose or prompter.ask_line("What is it for?", _PURPOSE)
    model, is_there = init_options.model, partial(_require_model, settings)
    if model is not None:
        is_there(model)
    else:
        found = await find_models(settings)
        is_only_local = bool(found) and default_model(settings) == OFFLINE_MODEL
        usual = found[0] if is_only_local else _ANY_MODEL
        choices = {usual: "", **dict.fromkeys((_ANY_MODEL, *found), "")}
        model = prompter.ask_choice("Model", choices, is_there)
    tools = init_options.tools or prompter.ask_choice("Tools", _TOOLS, _parse_tools)
    modes = {item: MODE_DESCRIPTIONS[item] for item in _MODES}
    mode = init_options.mode or prompter.ask_choice(
        "What may it do without asking?", modes, parse_mode
    )
    return NewAgent(
        name=name.strip(),
        purpose=purpose.strip(),
        model=None if model == _ANY_MODEL else model,
        tools=_parse_tools(tools),
        mode=None if mode == "default" else parse_mode(mode),
    )


def _require_model(settings: Settings, name: str) -> None:
    if name != _ANY_MODEL and (why := missing_model_reason(settings, name)):
        raise InvalidInput(why)


def _parse_tools(tools: str) -> tuple[str, ...] | None:
    """`None`: all of them."""
    names = tuple(canonical_name(tool.strip()) for tool in tools.split(",") if tool.strip())
    if {*names} & {_ALL_TOOLS, ALL_TOOLS}:
        return None
    if unknown := [name for name in names if name not in BUILTIN_TOOL_NAMES]:
        raise InvalidInput(
            f"there is no tool {unknown[0]}; there are {', '.join(sorted(BUILTIN_TOOL_NAMES))}"
        )
    return names


@dataclass(frozen=True, slots=True)
class _Prompter:
    """Asks at the terminal; where nobody is to be asked, what is usual is the answer."""

    screen: Screen
    is_asked: bool

    def ask_line(self, question: str, usual: str) -> str:
        if not self.is_asked:
            return usual
        try:
            return input(f"{question} [{usual}] ").strip() or usual
        except EOFError as error:
            self.screen.line()
            raise InvalidInput("not all was answered: nothing was written") from error

    def ask_choice(
        self, question: str, choices: Mapping[str, str], check: Callable[[str], object] = str
    ) -> str:
        """The first one is usual; a number, or what passes the check, will do as well."""
        names: Sequence[str] = list(choices)
        if not self.is_asked:
            return names[0]
        self.screen.paragraph((question, "bold"))
        for number, name in enumerate(names, 1):
            self.screen.paragraph((f"  {number}  {name}", ""), (f"  {choices[name]}", "dim"))
        while True:
            said = self.ask_line("Which?", "1")
            try:
                answer = _parse_choice(said, names)
                check(answer)
            except InvalidInput as error:
                self.screen.paragraph((str(error), "red"))
            else:
                return answer


def _parse_choice(answer: str, names: Sequence[str]) -> str:
    if not answer.isdecimal():
        return answer
    if not 0 < int(answer) <= len(names):
        raise InvalidInput(f"there is no {answer}: a number from 1 to {len(names)}, or a name")
    return names[int(answer) - 1]
