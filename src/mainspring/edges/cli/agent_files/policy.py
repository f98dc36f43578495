"""`mainspring policy`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.printing import Screen, StyledText, plural, print_note
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.error_table import with_hints
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.permissions.call_analysis import analyze_call
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Policy, PolicyRule, parse_mode
from mainspring.harness.permissions.replay_decisions import (
    ReplayedDecision,
    replay_decisions,
    traits_by_name,
)
from mainspring.harness.permissions.rule_descriptions import MODE_DESCRIPTIONS, describe_rule
from mainspring.harness.permissions.tool_names import canonical_name, claude_code_name
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.settings import project_trust
from mainspring.runtime.settings.policy_loader import LoadedPolicy, read_policy
from mainspring.runtime.settings.project_trust import unscheduled_reason
from mainspring.wiring.agent_selection import trust_models
from mainspring.wiring.settings_files import load_policy, read_project_files

EXIT_STATUS: Mapping[Permission, int] = {"allow": 0, "deny": 1, "ask": 3}
_STYLES: Mapping[Permission | None, str] = {"allow": "green", "ask": "yellow", "deny": "bold red"}
_MAIN_ARGUMENTS = {
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
"""The argument in the parentheses of a call that is written like a rule."""


class CheckView(Struct, frozen=True, kw_only=True):
    tool: str
    input: Mapping[str, object]
    decision: Permission
    gate: str
    rule: str | None
    reason: str | None
    asks: str | None
    mode: str


class PolicyRuleView(Struct, frozen=True, kw_only=True):
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
    rules: list[PolicyRuleView]


class RuleTestView(Struct, frozen=True, kw_only=True):
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


app = command_group()

FolderArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[DIR]", help="The folder. [default: this folder]")
]


@command(app)
async def check(  # parameters: the options of the command
    settings: Settings,
    *,
    call: Annotated[
        str | None,
        typer.Argument(metavar="[CALL]", help="The call, written like a rule: 'Bash(ls -l)'."),
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="A tool's name, with --input.")] = None,
    input_: Annotated[
        str, typer.Option("--input", metavar="JSON", help="The tool's input.")
    ] = "{}",
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="MODE", help="Use this mode instead of the current one."),
    ] = None,
    sandbox: Annotated[
        bool,
        typer.Option("--sandbox/--no-sandbox", help="Whether the call would run in a sandbox."),
    ] = True,
    json: JsonOption = False,
) -> int:
    """Show whether a call would be allowed here. Names the rule and the reason. Exit status 0:
    allowed, 3: a person is asked, 1: denied."""
    if (call is None) == (tool is None):
        raise typer.BadParameter("name a call, or use --tool", param_hint="CALL")
    name, values = (
        (canonical_name(tool), _parse_object(input_))
        if tool is not None
        else _parse_call(call or "")
    )
    policy = _load_policy(settings).policy
    if mode is not None:
        policy = msgspec.structs.replace(policy, mode=parse_mode(mode))
    decision = decide(
        analyze_call(name, values, traits_by_name(name), read_command_location(policy)),
        policy,
        GrantState(),
        now=clock.now(),
        is_sandboxed=sandbox,
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
        screen.json(view)
        return EXIT_STATUS[decision.decision]
    screen.line((f"{view.decision} ", _STYLES[view.decision]), (_call_text(name, values), "bold"))
    screen.paragraph((view.reason or "", ""), indent=2)
    by = f"{view.gate} {view.rule}" if view.rule else view.gate
    screen.line((f"  decided by: {by}; mode: {view.mode}", "dim"))
    return EXIT_STATUS[decision.decision]


@command(app)
async def explain(settings: Settings, *, json: JsonOption = False) -> int:
    """Show all rules that apply here. They are in order of evaluation, with their meaning."""
    loaded = _load_policy(settings)
    policy, mode = loaded.policy, loaded.policy.mode or "default"
    views = [_rule_view(number, rule) for number, rule in enumerate(_ordered_rules(policy), 1)]
    screen = Screen(settings)
    if json:
        view = ExplainView(
            folder=policy.workspace,
            mode=mode,
            is_trusted=loaded.is_trusted,
            directories=policy.directories,
            rules=views,
        )
        screen.json(view)
        return 0
    screen.paragraph(("mode ", "dim"), (mode, "bold"), (f": {MODE_DESCRIPTIONS[mode]}", ""))
    for folder in policy.directories:
        screen.paragraph(("also works in: ", "dim"), (folder, ""))
    if not views:
        screen.line(("no rules: only the mode decides", ""))
        return 0
    heads = ["ORDER", "DOES", "RULE", "SCOPE", "FILE", "MEANING"]
    screen.table(heads, [_rule_row(settings, view) for view in views])
    return 0


def _ordered_rules(policy: Policy) -> list[PolicyRule]:
    """In the order of evaluation: the first rule that matches a call decides."""
    order: tuple[Permission, ...] = ("deny", "ask", "allow")
    return [rule for behavior in order for rule in policy.rules if rule.behavior == behavior]


def _rule_view(number: int, rule: PolicyRule) -> PolicyRuleView:
    return PolicyRuleView(
        order=number,
        behavior=rule.behavior,
        rule=rule.text,
        scope=rule.scope,
        file=rule.source,
        meaning=describe_rule(rule),
    )


def _rule_row(settings: Settings, view: PolicyRuleView) -> list[StyledText]:
    return [
        (str(view.order), "dim"),
        (view.behavior, _STYLES[view.behavior]),
        (truncate(view.rule), "bold"),
        (view.scope, ""),
        (_near(settings, view.file), "dim"),
        (truncate(view.meaning), ""),
    ]


@command(app, "test")
async def retry(
    settings: Settings,
    *,
    rules: Annotated[
        str, typer.Argument(metavar="RULES", help="A settings file with the rules to test.")
    ],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="SESSION", help="A past session. Can be repeated."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    json: JsonOption = False,
) -> int:
    """Test other rules on past sessions. Shows which decisions would differ."""
    if bool(over) == every:
        raise typer.BadParameter("name sessions, or use --all", param_hint="--over")
    policy, screen = _read_rules(settings, rules), Screen(settings)
    tally: Counter[tuple[Permission | None, Permission]] = Counter()
    async with open_existing_log(settings) as log:
        for session_id in await _find_sessions(settings, log, over or []):
            for replayed in replay_decisions(await log.read(session_id), policy):
                tally[replayed.was, replayed.now.decision] += 1
                if json:
                    screen.json(_rule_test_view(session_id, replayed))
                elif replayed.is_changed:
                    _print_change(screen, session_id, replayed)
    if not json:
        _print_totals(screen, tally)
    return 0


def _read_rules(settings: Settings, rules: str) -> Policy:
    file = Path(settings.folder) / rules
    if not file.exists():
        raise InvalidInput(f"{rules}: there is no such file")
    policy, warnings = read_policy(file, folder=Path(settings.folder), home=Path(settings.home))
    for warning in warnings:
        print_note(settings, f"warning: {warning}", "yellow")
    return policy


async def _find_sessions(settings: Settings, log: SessionLog, over: list[str]) -> list[str]:
    if not over:
        return [session.id async for session in all_sessions(log.store)]
    rows = [await find_session(settings, log, id_or_part) for id_or_part in over]
    return list(dict.fromkeys(row.id for row in rows))


def _rule_test_view(session_id: str, replayed: ReplayedDecision) -> RuleTestView:
    return RuleTestView(
        session_id=session_id,
        call_id=replayed.call_id,
        seq=replayed.seq,
        tool=replayed.tool,
        input=replayed.input,
        was=replayed.was,
        person=replayed.person,
        now=replayed.now.decision,
        rule=replayed.now.rule,
        reason=replayed.now.reason,
    )


def _print_change(screen: Screen, session_id: str, replayed: ReplayedDecision) -> None:
    name = session_id if screen.width is None else short_id(session_id)
    person = f" (a person: {replayed.person})" if replayed.person else ""
    screen.line(
        (f"{replayed.was or 'not recorded'}{person}", _STYLES.get(replayed.was, "dim")),
        (" -> ", "dim"),
        (replayed.now.decision, _STYLES[replayed.now.decision]),
        (f"  {_call_text(replayed.tool, replayed.input)}", "bold"),
        (f"  {name} event {replayed.seq}", "dim"),
    )
    screen.paragraph((replayed.now.reason or "", "dim"), indent=2)


def _print_totals(screen: Screen, tally: Counter[tuple[Permission | None, Permission]]) -> None:
    changed = sum(number for (before, after), number in tally.items() if before != after)
    screen.line((f"{plural(tally.total(), 'call')}, {changed} decided differently", "bold"))
    for behavior in EXIT_STATUS:
        before = sum(number for (decision, _), number in tally.items() if decision == behavior)
        after = sum(number for (_, decision), number in tally.items() if decision == behavior)
        screen.line((f"  {behavior}: {before} -> {after}", _STYLES[behavior]))


@command(app)
async def trust(settings: Settings, *, folder: FolderArgument = None) -> int:
    """Trust the current settings of a folder. Untrusted settings can only forbid things."""
    place, home = _target_folder(settings, folder), Path(settings.home)
    project = read_project_files(place, home=home)
    project_trust.trust(place, project, home=home)
    screen = Screen(settings)
    screen.line(("trusted ", "green"), (str(place), "bold"))
    loaded = load_policy(place, home=home)
    rules = [rule for rule in loaded.policy.rules if rule.scope in ("project", "local")]
    hooks = [hook for hook in loaded.hooks if hook.scope in ("project", "local")]
    schedule = manifest.read_manifest(place / manifest.FILE).schedule
    unscheduled = unscheduled_reason(project) if schedule else None
    when = f", schedule {schedule.cron} {schedule.timezone} for `serve`" if schedule else ""
    when = "" if unscheduled else when
    parts = f"{plural(len(rules), 'rule')}, hooks in {plural(len(hooks), 'file')}{when}"
    screen.paragraph((f"  {parts}; a change to its settings revokes the trust", "dim"))
    for text, source in project.commands:
        line = text.replace("\n", "\\n")  # so that a comment does not hide the lines after it
        screen.paragraph((f"  runs outside the sandbox: {line} ({source})", ""))
    for text, source in project.server_commands:
        screen.paragraph((f"  MCP server: {' '.join(text.split())} ({source})", ""))
    for names, source in project.variables:
        screen.paragraph((f"  variables for commands in the sandbox: {names} ({source})", ""))
    if unscheduled:
        screen.paragraph((f"  schedule: {unscheduled}", "yellow"))
    _trust_models(screen, place / project_trust.MODELS_FILE, home)
    for model in await to_thread.run_sync(trust_models, settings, place):
        name = " ".join(model.name.split())
        screen.paragraph((f"  model: {name} ({model.file.relative_to(place)})", ""))
    return 0


def _trust_models(screen: Screen, file: Path, home: Path) -> None:
    if (content := read_bounded(file)) is None:
        return
    project_trust.trust_file(file, content, home=home)
    screen.paragraph((f"  models, prices and aliases: {project_trust.MODELS_FILE}", ""))
    for line in content.decode(errors="replace").splitlines():
        screen.paragraph((f"    {line}", "dim"))


@command(app)
async def untrust(settings: Settings, *, folder: FolderArgument = None) -> int:
    """Revoke the trust in a folder. Its settings can then only forbid things."""
    place = _target_folder(settings, folder)
    screen = Screen(settings)
    if not project_trust.distrust(place, home=Path(settings.home)):
        screen.line((f"{place} was not trusted", ""))
        return 1
    screen.line(("no longer trusted: ", "yellow"), (str(place), "bold"))
    return 0


def _target_folder(settings: Settings, folder: str | None) -> Path:
    return Path(os.path.realpath(Path(settings.folder) / (folder or ".")))


def _load_policy(settings: Settings) -> LoadedPolicy:
    loaded = load_policy(Path(settings.folder), home=Path(settings.home))
    for warning in loaded.warnings:
        print_note(settings, f"warning: {warning}", "yellow")
    return loaded


def _parse_object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"--input is not a JSON object: {error}") from error


def _parse_call(text: str) -> tuple[str, dict[str, object]]:
    name, opening, argument = text.strip().partition("(")
    tool = canonical_name(name)
    if not opening:
        return tool, {}
    if not argument.endswith(")"):
        raise InvalidInput(f"{text}: the parenthesis is not closed at the end")
    if tool not in _MAIN_ARGUMENTS:
        wrong = InvalidInput(f"{text}: parentheses work for built-in tools only")
        raise with_hints(wrong, f"--tool {name} --input '{{...}}' gives the whole input")
    return tool, {_MAIN_ARGUMENTS[tool]: argument[:-1]}


def _call_text(tool: str, values: Mapping[str, object]) -> str:
    """A call in one line, as rules are written."""
    field = _MAIN_ARGUMENTS.get(tool, "")
    value = values.get(field) if field else values
    text = value if isinstance(value, str) else msgspec.json.encode(value or values).decode()
    return truncate(f"{claude_code_name(tool)}({text})" if values else claude_code_name(tool))


def _near(settings: Settings, file: str) -> str:
    """A path relative to the folder or the home, if it is below one of them."""
    for folder, name in ((settings.folder, "."), (settings.home, "~")):
        if file.startswith(f"{folder}/"):
            return f"{name}{file[len(folder) :]}"
    return file
