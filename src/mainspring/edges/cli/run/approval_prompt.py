"""Asks a person at the terminal to approve tool calls, plans and the agent's own questions."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import RuleText
from mainspring.edges.cli.render.printing import Screen, StyledText, diff_style, plural
from mainspring.edges.cli.run.terminal_input import Keyboard
from mainspring.harness.permissions.always_allow import always_allow_rule, rule_update
from mainspring.harness.permissions.rule import rule_text
from mainspring.harness.state.open_approval import OpenApproval
from mainspring.harness.state.open_call import OpenCall
from mainspring.runtime.approvals import check_form, field_choices, form_fields, parse_field
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import (
    ThreadPendingCall,
    pending_calls,
    workspace_of,
)
from mainspring.runtime.settings.project_trust import LOCAL_FILE
from mainspring.runtime.slash_commands import PLAN_APPROVED_MESSAGE, mode_of, mode_update
from mainspring.wiring.settings_files import add_local_rules

ReadLine: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Asks the user for a line; returns `None` if the user left."""
PromptAnswer: TypeAlias = Literal["once", "session", "always", "no", "later"]
_KEYS = {
    word: word[0] for word in ["y", "yes", "n", "no", "s", "session", "a", "always", "v", "view"]
}
"""The accepted answers, and the key that each one means."""
_MAX_PREVIEW_LINES = 60  # of what will run; the rest is a key away
_ASK_USER = "ask_user"
_EXIT_PLAN = "exit_plan_mode"
_PLAN_CHOICES = (
    ("y", "carry it out, and ask before changes"),
    ("e", "carry it out; allow edits in the workspace"),
    ("n", "not now"),
)
_PLAN_MODES = {"y": "default", "yes": "default", "e": "acceptEdits"}
_NOT_PLANNING = "The permission mode is not plan: there is nothing to approve. Continue."
_NOT_NOW = "The user does not want the plan carried out now. End your turn and wait."


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    settings: Settings
    keyboard: Keyboard
    notes: Screen

    async def ask_all(self, session: Session) -> bool:
        """Ask about every pending call. Returns false if there is none, or if the user postpones
        one."""
        calls = pending_calls(await session.projection())
        place = Path(await workspace_of(session.log, session.id) or self.settings.folder)
        for item in calls:
            if item.call.open_approval is not None:
                is_settled = await self._ask_question(session, item, item.call.open_approval)
            elif item.call.kind == "custom":
                is_settled = await self._ask_user(session, item.call)
            else:
                is_settled = await self._ask(session, item, place)
            if not is_settled:
                return False
        return bool(calls)

    async def _ask(self, session: Session, pending: ThreadPendingCall, place: Path) -> bool:
        call = pending.call
        lines = preview_lines(call.preview, call.input)
        self._print_call(pending, lines)
        rule = always_allow_rule(call.name, call.input)
        match await self._read_answer(rule, place, unseen=lines[_MAX_PREVIEW_LINES:]):
            case "later":
                return False
            case "no":
                reason = await self.keyboard.ask("why not? (the agent reads it) ") or None
                await session.answer(call.id, "deny", message=reason)
                return True
            case verdict:
                if rule is not None and verdict != "once":
                    await session.permit(rule_update(rule), call_id=call.id)
                    if verdict == "always":
                        self._save_rule(rule, place)
                await session.answer(call.id, "allow")
                return True

    async def _ask_question(
        self, session: Session, pending: ThreadPendingCall, approval: OpenApproval
    ) -> bool:
        """Ask the question of a tool or of another part, which may have choices and a form."""
        request, notes = approval.request, self.notes
        notes.paragraph(("", ""))
        notes.paragraph((caller_path(pending), "bold"), (" asks:", "bold yellow"))
        for line in request.question.splitlines():
            notes.paragraph((line, ""), indent=2)
        for item in request.subject.evidence:
            notes.paragraph((f"{item.title}: {item.text or item.ref or ''}", "dim"), indent=2)
        choices = {str(number): choice for number, choice in enumerate(request.choices, 1)}
        for number, choice in choices.items():
            notes.paragraph((f"  {number}  ", "bold"), (choice, ""))
        answer = await self._read_key([*choices, "n"] if choices else ["y", "n"])
        if answer is None:
            return False
        if answer == "n":
            await session.answer(pending.call.id, "deny")
            return True
        form = None
        if request.form_schema is not None:
            form = await fill_form(notes, self.keyboard.ask, request.form_schema)
            if form is None:
                return False
        await session.answer(pending.call.id, "allow", form=form, choice=choices.get(answer))
        return True

    async def _read_key(self, keys: Sequence[str]) -> str | None:
        """Returns `None` if the user left."""
        while (answer := await self.keyboard.ask(f"answer it? [{'/'.join(keys)}] ")) is not None:
            key = _KEYS.get(answer.strip().lower(), answer.strip())
            if key in keys:
                return key
        return None

    def _print_call(self, pending: ThreadPendingCall, lines: Sequence[StyledText]) -> None:
        notes, reason = self.notes, pending.call.reason
        notes.paragraph(("", ""))
        notes.paragraph(
            ("Allow ", "bold yellow"), (caller_path(pending), "bold"), ("?", "bold yellow")
        )
        for part in lines[:_MAX_PREVIEW_LINES]:
            notes.paragraph(part, indent=2)
        if len(lines) > _MAX_PREVIEW_LINES:
            notes.paragraph(
                (f"... {plural(len(lines) - _MAX_PREVIEW_LINES, 'more line')}", "dim"), indent=2
            )
        if reason:
            notes.paragraph((f"asked because {reason}", "dim"))

    async def _read_answer(
        self, rule: RuleText | None, place: Path, *, unseen: Sequence[StyledText]
    ) -> PromptAnswer:
        choices: dict[str, PromptAnswer] = {"y": "once", "n": "no"}
        self.notes.paragraph(("  y  ", "bold"), ("allow this once", ""))
        if rule is not None:
            choices |= {"s": "session", "a": "always"}
            text = rule_text(rule)
            self.notes.paragraph(("  s  ", "bold"), (f"allow {text} in this session", ""))
            offer = f"always allow {text} here: adds it to {place / LOCAL_FILE}"
            self.notes.paragraph(("  a  ", "bold"), (offer, ""))
        self.notes.paragraph(("  n  ", "bold"), ("deny it, with a reason", ""))
        if unseen:
            self.notes.paragraph(("  v  ", "bold"), ("show the rest of it", ""))
        keys = "/".join([*choices, "v"] if unseen else choices)
        while (answer := await self.keyboard.ask(f"[{keys}] ")) is not None:
            key = _KEYS.get(answer.strip().lower())
            if key in choices:
                return choices[key]
            for part in unseen if key == "v" else ():
                self.notes.paragraph(part, indent=2)
            if answer.strip() and key is None:  # "stop" is not s, and "abort" is not a
                self.notes.paragraph((f"nothing is allowed yet: type {keys}", "dim"))
        return "later"

    def _save_rule(self, rule: RuleText, place: Path) -> None:
        file = add_local_rules(place, [rule_text(rule)], home=Path(self.settings.home))
        self.notes.paragraph((f"added {rule_text(rule)} to {file}", "dim"))

    async def _ask_user(self, session: Session, call: OpenCall) -> bool:
        """Ask the questions of the agent."""
        if call.name == _EXIT_PLAN:
            return await self._ask_about_plan(session, call)
        if call.name != _ASK_USER:
            return False  # a tool of the client: it cannot run here
        answers: dict[str, str] = {}
        for question in _mappings(call.input.get("questions")):
            answer = await self._answer(question)
            if answer is None:
                return False
            answers[str(question.get("question", ""))] = answer
        await session.settle(call.id, msgspec.json.encode({"answers": answers}).decode())
        return True

    async def _ask_about_plan(self, session: Session, call: OpenCall) -> bool:
        if await mode_of(session.log, session.id) != "plan":
            await session.settle(call.id, _NOT_PLANNING, ok=False)
            return True
        self.notes.paragraph(("", ""))
        for line in str(call.input.get("plan", "")).splitlines():
            self.notes.paragraph((line, ""), indent=2)
        self.notes.paragraph(("Carry out this plan?", "bold yellow"))
        for key, meaning in _PLAN_CHOICES:
            self.notes.paragraph((f"  {key}  ", "bold"), (meaning, ""))
        answer = (await self.keyboard.ask("[y/e/n] or what to change: ") or "").strip()
        mode = _PLAN_MODES.get(answer.lower())
        if mode is not None:
            await session.permit(*mode_update(mode).updates)
            self.notes.paragraph((f"approved; mode {mode}", "dim"))
            await session.settle(call.id, PLAN_APPROVED_MESSAGE)
        elif answer.lower() in ("", "n", "no"):
            self.notes.paragraph(("still in plan mode; /mode default leaves it", "dim"))
            await session.settle(call.id, _NOT_NOW)
        else:
            await session.settle(call.id, f"The user wants the plan changed: {answer}")
        return True

    async def _answer(self, question: Mapping[str, object]) -> str | None:
        self.notes.paragraph(("", ""))
        self.notes.paragraph((str(question.get("question", "")), "bold yellow"))
        options = [str(mapping.get("label", "")) for mapping in _mappings(question.get("options"))]
        for number, option in enumerate(_mappings(question.get("options")), 1):
            about = option.get("description")
            text = f"  {option.get('label', '')}" + (f": {about}" if about else "")
            self.notes.paragraph((f"  {number}", "bold"), (text, ""))
        answer = await self.keyboard.ask("number, or your own words: " if options else "> ")
        if answer is None:
            return None
        numbers = [part.strip() for part in answer.split(",")]
        if options and all(part.isdigit() and 0 < int(part) <= len(options) for part in numbers):
            return ", ".join(options[int(part) - 1] for part in numbers)
        return answer.strip()


def caller_path(pending: ThreadPendingCall) -> str:
    """The subagents that made a call, and its tool: `explore > bash`."""
    return " > ".join((*pending.path, pending.call.name))


def preview_lines(preview: str | None, arguments: Mapping[str, object]) -> list[StyledText]:
    """The effect of a call: the tool's preview (a diff or a command), else its input."""
    text = preview
    if text is None:
        text = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    is_diff = "+++ " in text
    return [(line, diff_style(line) if is_diff else "") for line in text.splitlines()]


def _mappings(value: object) -> list[Mapping[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, object]", item) for item in items if isinstance(item, dict)]


async def fill_form(
    notes: Screen, read_line: ReadLine, schema: Mapping[str, object]
) -> dict[str, object] | None:
    """Ask for the fields of a form one by one. Returns `None` if the user has left."""
    required = cast("list[str]", schema.get("required") or [])
    form: dict[str, object] = {}
    for name, field in form_fields(schema).items():
        about = field.get("description") or field.get("title")
        choices = ", ".join(map(str, field_choices(field))) or str(field.get("type", "string"))
        is_optional = name not in required
        label = f"{name}: {about}" if about else name
        notes.paragraph((label, "bold"), (f"  ({choices})", "dim"))
        while (text := await read_line("> " if not is_optional else "(optional) > ")) is not None:
            if not text.strip() and is_optional:
                break
            value = parse_field(field, text.strip())
            try:
                check_form({"properties": {name: field}}, {name: value})
            except InvalidInput as error:
                notes.paragraph((str(error).removeprefix("form."), "red"))
                continue
            form[name] = value
            break
        if text is None:
            return None
    return form
