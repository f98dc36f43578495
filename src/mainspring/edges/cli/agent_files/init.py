"""`mainspring init`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread

from mainspring.capabilities.providers.script_file import OFFLINE_MODEL
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, print_note
from mainspring.edges.cli.run.model_discovery import find_models
from mainspring.edges.cli.run.run_arguments import ModeChoice
from mainspring.error_table import with_hints
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.rule_descriptions import MODE_DESCRIPTIONS
from mainspring.harness.permissions.tool_names import ALL_TOOLS, BUILTIN_TOOL_NAMES, canonical_name
from mainspring.runtime.agent_folder.folder_versions import record_version
from mainspring.runtime.agent_folder.manifest import FILE
from mainspring.runtime.agent_folder.new_agent import NewAgent, check_no_agent, write_agent
from mainspring.runtime.settings.model_trust import ChosenModel
from mainspring.runtime.settings.project_trust import is_trusted
from mainspring.runtime.versions import Version
from mainspring.wiring.agent_selection import missing_model_reason
from mainspring.wiring.providers import default_model
from mainspring.wiring.settings_files import read_project_files, trust

_PURPOSE = "Helps with the work in this folder."
_ANY_MODEL = "the default where it runs"
_ALL_TOOLS = "all"
_READ_TOOLS = "read,glob,grep"
_TOOLS = {_ALL_TOOLS: "files, commands in a sandbox, the web", _READ_TOOLS: "read only"}
_MODES = ("default", "acceptEdits", "plan", "auto")


async def init(  # noqa: PLR0913 (the options of the command)
    settings: Settings,
    *,
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="The folder. [default: this folder]")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agent's name. [default: the folder's name]"),
    ] = None,
    purpose: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The purpose of the agent, in one sentence.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="The model. [default: any available model]"
        ),
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Its tools, separated by commas, such as read,grep,edit. [default: all]",
        ),
    ] = None,
    mode: Annotated[
        ModeChoice | None,
        typer.Option(
            "--mode",
            help="The permission mode: what the agent may do without asking.",
            show_choices=True,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; use the defaults.")] = False,
    json: JsonOption = False,
) -> int:
    """Create a new agent in a folder. Asks a few questions and writes files that you can run at
    once. Existing files are not changed."""
    place = _target_folder(settings, folder)
    if not yes and not sys.stdin.isatty():
        refusal = InvalidInput("there is no terminal for questions: nothing was written")
        hint = "--yes uses the defaults for --name, --purpose, --model, --tools, --mode"
        raise with_hints(refusal, hint)
    check_no_agent(place)  # before any question
    options = _InitOptions(name=name, purpose=purpose, model=model, tools=tools, mode=mode)
    prompter = _Prompter(Screen(settings, stderr=True), is_asked=not yes)
    plan = await _plan(settings, place, options, prompter)
    files, version = await to_thread.run_sync(_create_files, settings, place, plan)
    screen = Screen(settings)
    if json:
        fields = {name: getattr(plan, name) for name in ("name", "model", "tools", "mode")}
        view = {"folder": str(place), "files": [file.name for file in files], **fields}
        screen.json({**view, "version": version.number})
        return 0
    for file in files:
        screen.line(("created ", "green"), (str(file), "bold"))
    if plan.model is None and default_model(settings) == OFFLINE_MODEL:
        note = "no API key and no local server: it uses the offline model for now"
        print_note(settings, note, "yellow")
    where = f"cd {folder} && " if folder else ""
    print_note(settings, f"run it: {where}mainspring run 'what can you do?'")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _InitOptions:
    """Values from the command line; `None`: the user is asked."""

    name: str | None
    purpose: str | None
    model: str | None
    tools: str | None
    mode: str | None


def _target_folder(settings: Settings, folder: str | None) -> Path:
    return Path(os.path.realpath(Path(settings.folder, folder or ".")))


def _create_files(
    settings: Settings, place: Path, new_agent: NewAgent
) -> tuple[list[Path], Version]:
    home = Path(settings.home)
    was_trusted = is_trusted(place, read_project_files(place, home=home), home=home)
    files = write_agent(place, new_agent)
    if was_trusted:
        trust(place, home=home)  # its author has just confirmed every part of it
    if new_agent.model is not None:
        ChosenModel(place / FILE, new_agent.model).trust(home)
    return files, record_version(place, clock.now)


async def _plan(
    settings: Settings, place: Path, options: _InitOptions, prompter: _Prompter
) -> NewAgent:
    name = options.name or prompter.ask_line("Name", place.name or "agent")
    purpose = options.purpose or prompter.ask_line("What is it for?", _PURPOSE)
    model, require = options.model, partial(_require_model, settings)
    if model is not None:
        require(model)
    else:
        models = await find_models(settings)
        is_only_local = bool(models) and default_model(settings) == OFFLINE_MODEL
        default = models[0] if is_only_local else _ANY_MODEL
        choices = {default: "", **dict.fromkeys((_ANY_MODEL, *models), "")}
        model = prompter.ask_choice("Model", choices, require)
    tools = options.tools or prompter.ask_choice("Tools", _TOOLS, _parse_tools)
    modes = {item: MODE_DESCRIPTIONS[item] for item in _MODES}
    mode = options.mode or prompter.ask_choice("Allowed without asking?", modes, parse_mode)
    return NewAgent(
        name=name.strip(),
        purpose=purpose.strip(),
        model=None if model == _ANY_MODEL else model,
        tools=_parse_tools(tools),
        mode=None if mode == "default" else parse_mode(mode),
    )


def _require_model(settings: Settings, name: str) -> None:
    if name != _ANY_MODEL and (reason := missing_model_reason(settings, name)):
        raise InvalidInput(reason)


def _parse_tools(tools: str) -> tuple[str, ...] | None:
    """`None`: all tools."""
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
    """Asks at the terminal, or answers with the defaults."""

    screen: Screen
    is_asked: bool

    def ask_line(self, question: str, default: str) -> str:
        if not self.is_asked:
            return default
        try:
            return input(f"{question} [{default}] ").strip() or default
        except EOFError as error:
            self.screen.line()
            raise InvalidInput("not all questions were answered: nothing was written") from error

    def ask_choice(
        self, question: str, choices: Mapping[str, str], check: Callable[[str], object] = str
    ) -> str:
        """The first choice is the default; a number or a valid name is accepted."""
        names: Sequence[str] = list(choices)
        if not self.is_asked:
            return names[0]
        self.screen.paragraph((question, "bold"))
        for number, name in enumerate(names, 1):
            self.screen.paragraph((f"  {number}  {name}", ""), (f"  {choices[name]}", "dim"))
        while True:
            text = self.ask_line("Which?", "1")
            try:
                answer = _parse_choice(text, names)
                check(answer)
            except InvalidInput as error:
                self.screen.paragraph((str(error), "red"))
            else:
                return answer


def _parse_choice(answer: str, names: Sequence[str]) -> str:
    if not answer.isdecimal():
        return answer
    if not 0 < int(answer) <= len(names):
        raise InvalidInput(f"{answer} is not a choice: enter 1 to {len(names)}, or a name")
    return names[int(answer) - 1]
