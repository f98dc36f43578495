"""What a scene is: a command, run with and without each of its options."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from string import Template
from typing import TypeAlias

from msgspec import Struct
from tests.cli.scenes.place import Outcome, Place

_USAGE_ERROR = 2


class Change(Struct, frozen=True):
    """What an option changes."""

    arguments: str
    """The option with its value."""
    shows: str = ""
    """What only the run with the option leaves behind."""
    hides: str = ""
    """What only the run without it leaves behind."""
    base: str | None = None
    """The arguments of both runs, if they are not those of the scene."""
    is_refused: bool = False
    """It ends the command with an error."""
    stdin: str | None = None


def shows(arguments: str, text: str, base: str | None = None, stdin: str | None = None) -> Change:
    return Change(arguments, shows=text, base=base, stdin=stdin)


def hides(arguments: str, text: str, base: str | None = None, stdin: str | None = None) -> Change:
    return Change(arguments, hides=text, base=base, stdin=stdin)


def refuses(arguments: str, text: str, base: str | None = None) -> Change:
    return Change(arguments, shows=text, base=base, is_refused=True)


class Json(Struct, frozen=True):
    """`--json`: each line of standard output is JSON, and not without it."""

    base: str | None = None


JSON = Json()
Options: TypeAlias = Mapping[str, Change | Json]


class Scene(Struct, frozen=True, kw_only=True):
    place: str
    """Where it begins: a name in `PLACES`."""
    base: str = ""
    """The arguments without the option."""
    options: Options
    stdin: str = ""


Scenes: TypeAlias = Mapping[str, Scene]


def play(place: Place, command: str, scene: Scene) -> None:
    """Run the command with and without each option, and look for the difference."""
    without: dict[tuple[str, str], Outcome] = {}

    def run(base: str, option: str, stdin: str) -> Outcome:
        place.restore()
        words = f"{option} {base}" if " -- " in base else f"{base} {option}"  # the last one wins
        return place.run(*shlex.split(f"{command} {words}"), stdin=stdin)

    problems: list[str] = []
    for name, change in scene.options.items():
        base = scene.base if change.base is None else change.base
        stdin = scene.stdin
        if isinstance(change, Change) and change.stdin is not None:
            stdin = change.stdin
        if (base, stdin) not in without:
            without[base, stdin] = run(base, "", stdin)
        before = without[base, stdin]
        option = "--json" if isinstance(change, Json) else change.arguments
        after = run(base, option, stdin)
        if (problem := _problem(change, before, after, place)) is not None:
            problems.append(
                f"{command} {option} {base}: {problem}\n--- with it: {_shown(after)}"
                f"\n--- without it: {_shown(before)}"
            )
        assert option.split("=")[0].split()[0] == name, f"{command}: {name} is not {option}"
    assert not problems, "\n\n".join(problems)


def _shown(outcome: Outcome) -> str:
    return f"exit {outcome.status}\n{outcome.stdout[-1500:]}\n{outcome.stderr[-1500:]}"


def _problem(change: Change | Json, before: Outcome, after: Outcome, place: Place) -> str | None:
    """Why the difference does not prove an effect."""
    if isinstance(change, Json):
        if not _is_json(after.stdout):
            return "standard output is not JSON"
        return "it is JSON without the option" if _is_json(before.stdout) else None
    is_error = after.status == _USAGE_ERROR
    if is_error != change.is_refused:
        return "it was refused" if is_error else "it was not refused"
    text = Template(change.shows or change.hides).substitute(place.facts)
    one, other = (after, before) if change.shows else (before, after)
    if any(
        text in part and text not in less for part, less in zip(one.parts, other.parts, strict=True)
    ):
        return None
    return f"{text!r} makes no difference"


def _is_json(text: str) -> bool:
    try:
        return bool([json.loads(line) for line in text.splitlines()])
    except ValueError:
        return False
