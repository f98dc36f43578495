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
from mainspring.edges.cli.render import Screen
from mainspring.harness.permissions.meaning import MODES_IN_WORDS
from mainspring.harness.permissions.names import ours
from mainspring.harness.permissions.policy import parse_mode
from mainspring.runtime.folder.scaffold import Plan, refuse_taken, write_agent
from mainspring.runtime.folder.versions import Version, record
from mainspring.wiring.built_ins import ALL, NAMES
from mainspring.wiring.found_models import find_models
from mainspring.wiring.models import OFFLINE, default_model
from mainspring.wiring.named import without_model
from mainspring.wiring.trust import is_trusted, read_whole_project, trust

_PURPOSE = "Helps with the work in this folder."
_ANY = "whichever there is where it runs"
_ALL_TOOLS = "all"
_READING = "read,glob,grep"
_TOOLS = {_ALL_TOOLS: "files, commands in a sandbox, the web", _READING: "it only looks"}
_MODES = ("default", "acceptEdits", "plan", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was said on the command line; `None`: nothing."""

    name: str | None = None
    purpose: str | None = None
    model: str | None = None
    tools: str | None = None
    mode: str | None = None
    is_asked: bool = True


async def init(settings: Settings, *, folder: str | None, wanted: Wanted, json: bool) -> int:
    """Raises: InvalidInput."""
    place = _place(settings, folder)
    if wanted.is_asked and not sys.stdin.isatty():
        nobody = InvalidInput("there is no terminal to ask at: nothing was written")
        nobody.add_note(
            "--yes takes what is usual; --name, --purpose, --model, --tools, --mode say"
        )
        raise nobody
    refuse_taken(place)  # before anybody is asked anything
    asker = _Asker(Screen(settings, stderr=True), is_asked=wanted.is_asked)
    plan = await _plan(settings, place, wanted, asker)
    files, version = await to_thread.run_sync(_made, settings, place, plan)
    screen = Screen(settings)
    if json:
        said = {"folder": str(place), "files": [each.name for each in files], **_said(plan)}
        screen.json(msgspec.json.encode({**said, "version": version.number}))
        return 0
    for file in files:
        screen.line(("made ", "green"), (str(file), "bold"))
    notes = Screen(settings, stderr=True)
    if plan.model is None and default_model(settings) == OFFLINE:
        offline = "no key and no local server: it runs with the offline model for now"
        notes.whole((offline, "yellow"))
    where = f"cd {folder} && " if folder else ""
    notes.whole((f"run it: {where}mainspring run 'what can you do?'", "dim"))
    return 0


def _place(settings: Settings, folder: str | None) -> Path:
    return Path(os.path.realpath(Path(settings.folder, folder or ".")))


def _made(settings: Settings, place: Path, plan: Plan) -> tuple[list[Path], Version]:
    home = Path(settings.home)
    was_trusted = is_trusted(place, read_whole_project(place, home=home), home=home)
    files = write_agent(place, plan)
    if was_trusted:
        trust(place, home=home)  # whoever has just said it has vouched for it
    return files, record(place, clock.now)


def _said(plan: Plan) -> Mapping[str, object]:
    return {"name": plan.name, "model": plan.model, "tools": plan.tools, "mode": plan.mode}


async def _plan(settings: Settings, place: Path, wanted: Wanted, asker: _Asker) -> Plan:
    name = wanted.name or asker.line("Name", place.name or "agent")
    purpose = wanted.purpose or asker.line("What is it for?", _PURPOSE)
    model, is_there = wanted.model, partial(_require_model, settings)
    if model is not None:
        is_there(model)
    else:
        found = await find_models(settings)
        is_only_local = bool(found) and default_model(settings) == OFFLINE
        usual = found[0] if is_only_local else _ANY
        choices = {usual: "", **dict.fromkeys((_ANY, *found), "")}
        model = asker.one_of("Model", choices, is_there)
    tools = wanted.tools or asker.one_of("Tools", _TOOLS, _names)
    modes = {each: MODES_IN_WORDS[each] for each in _MODES}
    mode = wanted.mode or asker.one_of("What may it do without asking?", modes, parse_mode)
    return Plan(
        name=name.strip(),
        purpose=purpose.strip(),
        model=None if model == _ANY else model,
        tools=_names(tools),
        mode=None if mode == "default" else parse_mode(mode),
    )


def _require_model(settings: Settings, name: str) -> None:
    if name != _ANY and (why := without_model(settings, name)):
        raise InvalidInput(why)


def _names(tools: str) -> tuple[str, ...] | None:
    """`None`: all of them."""
    names = tuple(ours(each.strip()) for each in tools.split(",") if each.strip())
    if {*names} & {_ALL_TOOLS, ALL}:
        return None
    if unknown := [name for name in names if name not in NAMES]:
        raise InvalidInput(f"there is no tool {unknown[0]}; there are {', '.join(sorted(NAMES))}")
    return names


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks at the terminal; where nobody is to be asked, what is usual is the answer."""

    screen: Screen
    is_asked: bool

    def line(self, question: str, usual: str) -> str:
        if not self.is_asked:
            return usual
        try:
            return input(f"{question} [{usual}] ").strip() or usual
        except EOFError as error:
            self.screen.line()
            raise InvalidInput("not all was answered: nothing was written") from error

    def one_of(
        self, question: str, choices: Mapping[str, str], check: Callable[[str], object] = str
    ) -> str:
        """The first one is usual; a number, or what passes the check, will do as well."""
        names: Sequence[str] = list(choices)
        if not self.is_asked:
            return names[0]
        self.screen.whole((question, "bold"))
        for number, name in enumerate(names, 1):
            self.screen.whole((f"  {number}  {name}", ""), (f"  {choices[name]}", "dim"))
        while True:
            said = self.line("Which?", "1")
            try:
                answer = _chosen(said, names)
                check(answer)
            except InvalidInput as error:
                self.screen.whole((str(error), "red"))
            else:
                return answer


def _chosen(answer: str, names: Sequence[str]) -> str:
    if not answer.isdecimal():
        return answer
    if not 0 < int(answer) <= len(names):
        raise InvalidInput(f"there is no {answer}: a number from 1 to {len(names)}, or a name")
    return names[int(answer) - 1]
