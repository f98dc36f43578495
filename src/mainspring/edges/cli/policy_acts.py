"""What `mainspring policy` does."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.edges.cli.gist import cut, short
from mainspring.edges.cli.render import Part, Screen, counted
from mainspring.edges.cli.sessions import every_session, existing_log, find_session
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.judged import judged_call
from mainspring.harness.permissions.meaning import MODES_IN_WORDS, meaning
from mainspring.harness.permissions.names import ours, theirs
from mainspring.harness.permissions.policy import HeldRule, Policy, parse_mode
from mainspring.harness.permissions.retrial import Retried, retry_calls, traits_by_name
from mainspring.harness.permissions.standing import Standing
from mainspring.log.session_log import SessionLog
from mainspring.runtime.folder import manifest
from mainspring.wiring import trust as trusting
from mainspring.wiring.command_place import place_of
from mainspring.wiring.policies import LoadedPolicy, load_policy, read_policy
from mainspring.wiring.unscheduled import why_unscheduled

STATUS: Mapping[Permission, int] = {"allow": 0, "deny": 1, "ask": 3}
_STYLES: Mapping[Permission | None, str] = {"allow": "green", "ask": "yellow", "deny": "bold red"}
_FIELDS = {
    "agent": "subagent_type",
    "bash": "command",
    "edit": "file_path",
    "glob": "pattern",
    "grep": "path",
    "read": "file_path",
    "service_start": "command",
    "skill": "skill",
    "web_fetch": "url",
    "write": "file_path",
}
"""What stands in the parentheses of a call that is written like a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    mode: str | None
    is_sandboxed: bool


class CheckView(Struct, frozen=True, kw_only=True):
    tool: str
    input: Mapping[str, object]
    decision: Permission
    gate: str
    rule: str | None
    reason: str | None
    asks: str | None
    mode: str


class RuleView(Struct, frozen=True, kw_only=True):
    order: int
    behavior: Permission
    rule: str
    scope: str
    file: str
    meaning: str


class ExplainView(Struct, frozen=True, kw_only=True):
    folder: str
    mode: str
    is_trusted: bool
    directories: tuple[str, ...]
    rules: list[RuleView]


class RetrialView(Struct, frozen=True, kw_only=True):
    session_id: str
    call_id: str
    seq: int
    tool: str
    input: Mapping[str, object]
    was: Permission | None
    person: Permission | None
    now: Permission
    rule: str | None
    reason: str | None


async def check(
    settings: Settings,
    *,
    call: str | None,
    tool: str | None,
    given: str,
    circumstances: Circumstances,
    json: bool,
) -> int:
    """Raises: InvalidInput."""
    name, values = (ours(tool), _object(given)) if tool is not None else _call(call or "")
    policy = _load(settings).policy
    if circumstances.mode is not None:
        policy = msgspec.structs.replace(policy, mode=parse_mode(circumstances.mode))
    decision = decide(
        judged_call(name, values, traits_by_name(name), place_of(policy)),
        policy,
        Standing(),
        now=clock.now(),
        is_sandboxed=circumstances.is_sandboxed,
    )
    view = CheckView(
        tool=name,
        input=values,
        decision=decision.decision,
        gate=decision.gate,
        rule=decision.rule,
        reason=decision.reason,
        asks=decision.asks if decision.decision == "ask" else None,
        mode=policy.mode or "default",
    )
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(view))
        return STATUS[decision.decision]
    screen.line((f"{view.decision} ", _STYLES[view.decision]), (_shown(name, values), "bold"))
    screen.whole((view.reason or "", ""), indent=2)
    by = f"{view.gate} {view.rule}" if view.rule else view.gate
    screen.line((f"  decided by: {by}; mode: {view.mode}", "dim"))
    return STATUS[decision.decision]


async def explain(settings: Settings, *, json: bool) -> int:
    """Raises: InvalidInput."""
    loaded = _load(settings)
    policy, mode = loaded.policy, loaded.policy.mode or "default"
    ordered = _in_order(policy)
    views = [_rule_view(number, held) for number, held in enumerate(ordered, 1)]
    screen = Screen(settings)
    if json:
        view = ExplainView(
            folder=policy.workspace,
            mode=mode,
            is_trusted=loaded.is_trusted,
            directories=policy.directories,
            rules=views,
        )
        screen.json(msgspec.json.encode(view))
        return 0
    screen.whole(("mode ", "dim"), (mode, "bold"), (f": {MODES_IN_WORDS[mode]}", ""))
    for folder in policy.directories:
        screen.whole(("also worked in: ", "dim"), (folder, ""))
    if not views:
        screen.line(("no rules: nothing is allowed or denied beyond the mode", ""))
        return 0
    heads = ["ORDER", "DOES", "RULE", "SCOPE", "FILE", "MEANING"]
    screen.table(heads, [_rule_row(settings, view) for view in views])
    return 0


def _in_order(policy: Policy) -> list[HeldRule]:
    """As they are asked: the first that speaks for a call decides."""
    order: tuple[Permission, ...] = ("deny", "ask", "allow")
    return [held for behavior in order for held in policy.rules if held.behavior == behavior]


def _rule_view(number: int, held: HeldRule) -> RuleView:
    return RuleView(
        order=number,
        behavior=held.behavior,
        rule=held.text,
        scope=held.scope,
        file=held.source,
        meaning=meaning(held),
    )


def _rule_row(settings: Settings, view: RuleView) -> list[Part]:
    return [
        (str(view.order), "dim"),
        (view.behavior, _STYLES[view.behavior]),
        (cut(view.rule), "bold"),
        (view.scope, ""),
        (_near(settings, view.file), "dim"),
        (cut(view.meaning), ""),
    ]


async def retry(settings: Settings, *, rules: str, over: tuple[str, ...], json: bool) -> int:
    """Raises: InvalidInput."""
    file = Path(settings.folder) / rules
    if not file.exists():
        raise InvalidInput(f"{rules}: there is no such file")
    policy, warnings = read_policy(file, folder=Path(settings.folder), home=Path(settings.home))
    notes, screen = Screen(settings, stderr=True), Screen(settings)
    for warning in warnings:
        notes.whole((f"warning: {warning}", "yellow"))
    tally: Counter[tuple[Permission | None, Permission]] = Counter()
    async with existing_log(settings) as log:
        for session_id in await _meant(log, over):
            for retried in retry_calls(await log.read(session_id), policy):
                tally[retried.was, retried.now.decision] += 1
                if json:
                    screen.json(msgspec.json.encode(_retrial_view(session_id, retried)))
                elif retried.is_changed:
                    _tell_change(screen, session_id, retried)
    if not json:
        _tell_tally(screen, tally)
    return 0


async def _meant(log: SessionLog, over: tuple[str, ...]) -> list[str]:
    if not over:
        return [session.id async for session in every_session(log)]
    return list(dict.fromkeys([(await find_session(log, meant)).id for meant in over]))


def _retrial_view(session_id: str, retried: Retried) -> RetrialView:
    return RetrialView(
        session_id=session_id,
        call_id=retried.call_id,
        seq=retried.seq,
        tool=retried.tool,
        input=retried.input,
        was=retried.was,
        person=retried.person,
        now=retried.now.decision,
        rule=retried.now.rule,
        reason=retried.now.reason,
    )


def _tell_change(screen: Screen, session_id: str, retried: Retried) -> None:
    name = session_id if screen.width is None else short(session_id)
    person = f" (a person: {retried.person})" if retried.person else ""
    screen.line(
        (f"{retried.was or 'not recorded'}{person}", _STYLES.get(retried.was, "dim")),
        (" -> ", "dim"),
        (retried.now.decision, _STYLES[retried.now.decision]),
        (f"  {_shown(retried.tool, retried.input)}", "bold"),
        (f"  {name} event {retried.seq}", "dim"),
    )
    screen.whole((retried.now.reason or "", "dim"), indent=2)


def _tell_tally(screen: Screen, tally: Counter[tuple[Permission | None, Permission]]) -> None:
    changed = sum(number for (was, now), number in tally.items() if was != now)
    total = counted(tally.total(), "call")
    screen.line((f"{total}, {changed} decided otherwise", "bold"))
    for behavior in STATUS:
        was = sum(number for (then, _), number in tally.items() if then == behavior)
        now = sum(number for (_, then), number in tally.items() if then == behavior)
        screen.line((f"  {behavior}: {was} -> {now}", _STYLES[behavior]))


async def trust(settings: Settings, *, folder: str | None) -> int:
    """Raises: InvalidInput."""
    place, home = _named(settings, folder), Path(settings.home)
    project = trusting.read_whole_project(place, home=home)
    trusting.trust(place, home=home, project=project)
    screen = Screen(settings)
    screen.line(("trusted ", "green"), (str(place), "bold"))
    loaded = load_policy(place, home=home)
    own = [held for held in loaded.policy.rules if held.scope in ("project", "local")]
    hooks = [hook for hook in loaded.hooks if hook.scope in ("project", "local")]
    schedule = manifest.read_manifest(place / manifest.FILE).schedule
    when = f", schedule {schedule.cron} {schedule.timezone} for `serve`" if schedule else ""
    unscheduled = why_unscheduled(project) if schedule else None
    when = "" if unscheduled else when
    told = f"{counted(len(own), 'rule')}, hooks in {counted(len(hooks), 'file')}{when}"
    screen.whole((f"  {told}; a change to its settings takes the trust away", "dim"))
    for text, source in project.commands:
        shown = text.replace("\n", "\\n")  # what follows a comment is seen to be another line
        screen.whole((f"  runs outside the sandbox: {shown} ({source})", ""))
    for names, source in project.variables:
        screen.whole((f"  variables for commands in the sandbox: {names} ({source})", ""))
    if unscheduled:
        screen.whole((f"  schedule: {unscheduled}", "yellow"))
    return 0


async def untrust(settings: Settings, *, folder: str | None) -> int:
    """Raises: InvalidInput."""
    place = _named(settings, folder)
    screen = Screen(settings)
    if not trusting.distrust(place, home=Path(settings.home)):
        screen.line((f"{place} was not trusted", ""))
        return 1
    screen.line(("not trusted any more: ", "yellow"), (str(place), "bold"))
    return 0


def _named(settings: Settings, folder: str | None) -> Path:
    return Path(os.path.realpath(Path(settings.folder) / (folder or ".")))


def _load(settings: Settings) -> LoadedPolicy:
    loaded = load_policy(Path(settings.folder), home=Path(settings.home))
    notes = Screen(settings, stderr=True)
    for warning in loaded.warnings:
        notes.whole((f"warning: {warning}", "yellow"))
    return loaded


def _object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"--input is not a JSON object: {error}") from error


def _call(text: str) -> tuple[str, dict[str, object]]:
    name, opening, rest = text.strip().partition("(")
    tool = ours(name)
    if not opening:
        return tool, {}
    if not rest.endswith(")"):
        raise InvalidInput(f"{text}: the parenthesis is not closed at the end")
    if tool not in _FIELDS:
        wrong = InvalidInput(f"{text}: what stands in the parentheses is known for built-ins only")
        wrong.add_note(f"--tool {name} --input '{{...}}' says it whole")
        raise wrong
    return tool, {_FIELDS[tool]: rest[:-1]}


def _shown(tool: str, values: Mapping[str, object]) -> str:
    """A call in one line, as rules are written."""
    field = _FIELDS.get(tool, "")
    what = values.get(field) if field else values
    text = what if isinstance(what, str) else msgspec.json.encode(what or values).decode()
    return cut(f"{theirs(tool)}({text})" if values else theirs(tool))


def _near(settings: Settings, file: str) -> str:
    """A path as people know it."""
    for folder, name in ((settings.folder, "."), (settings.home, "~")):
        if file.startswith(f"{folder}/"):
            return f"{name}{file[len(folder) :]}"
    return file
