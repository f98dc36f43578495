"""A person is asked in the terminal: what will happen, why it is asked, and what they say to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec

from mainspring.config import Settings
from mainspring.core.events import RuleText
from mainspring.edges.cli.keyboard import Keyboard
from mainspring.edges.cli.render import Part, Screen, counted
from mainspring.harness.open_call import OpenCall
from mainspring.harness.permissions.always import always, update_of
from mainspring.harness.permissions.rules import written
from mainspring.runtime.commands import APPROVED, mode_update
from mainspring.runtime.modes import mode_of
from mainspring.runtime.outline import Waiting, waiting, workspace_of
from mainspring.runtime.sessions import Session
from mainspring.wiring.policies import add_local_rules
from mainspring.wiring.trust import LOCAL_FILE

Verdict: TypeAlias = Literal["once", "session", "always", "no", "later"]
_KEYS = {
    word: word[0] for word in ["y", "yes", "n", "no", "s", "session", "a", "always", "v", "view"]
}
"""Whole words only."""
_LONGEST = 60
_ASK_USER = "ask_user"
_EXIT_PLAN = "exit_plan_mode"
_PLAN_CHOICES = (
    ("y", "carry it out, and ask before changes"),
    ("e", "carry it out; edits in the workspace pass"),
    ("n", "not now"),
)
_PLAN_MODES = {"y": "default", "yes": "default", "e": "acceptEdits"}
_NOT_PLANNING = "The permission mode is not plan: there is nothing to approve. Go on."
_NOT_NOW = "The user does not want the plan carried out now. End your turn and wait."


def is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(frozen=True, slots=True)
class Approver:
    settings: Settings
    keyboard: Keyboard
    notes: Screen

    async def ask_all(self, session: Session) -> bool:
        """Ask about every call that waits; False if there is none, or as soon as somebody leaves
        one for later."""
        row = await session.log.session(session.id)
        asked = await waiting(session.log, row)
        place = Path(await workspace_of(session.log, session.id) or self.settings.folder)
        for each in asked:
            self.keyboard.forget()
            is_settled = (
                await self._ask_user(session, each.call)
                if each.call.kind == "custom"
                else await self._ask(session, each, place)
            )
            if not is_settled:
                return False
        return bool(asked)

    async def _ask(self, session: Session, asked: Waiting, place: Path) -> bool:
        call = asked.call
        lines = effect(call.preview, call.input)
        self._show(asked, lines)
        rule = always(call.name, call.input)
        match self._verdict(rule, place, unseen=lines[_LONGEST:]):
            case "later":
                return False
            case "no":
                reason = self._line("why not? (the agent reads it) ") or None
                await session.answer(call.id, "deny", message=reason)
                return True
            case verdict:
                if rule is not None and verdict != "once":
                    await session.permit(update_of(rule), call_id=call.id)
                    if verdict == "always":
                        self._write_down(rule, place)
                await session.answer(call.id, "allow")
                return True

    def _show(self, asked: Waiting, lines: Sequence[Part]) -> None:
        notes, reason = self.notes, asked.call.reason
        notes.whole(("", ""))
        notes.whole(("may it? ", "bold yellow"), (who_asks(asked), "bold"))
        for part in lines[:_LONGEST]:
            notes.whole(part, indent=2)
        if len(lines) > _LONGEST:
            notes.whole((f"... {counted(len(lines) - _LONGEST, 'more line')}", "dim"), indent=2)
        if reason:
            notes.whole((f"asked because {reason}", "dim"))

    def _verdict(self, rule: RuleText | None, place: Path, *, unseen: Sequence[Part]) -> Verdict:
        choices: dict[str, Verdict] = {"y": "once", "n": "no"}
        self.notes.whole(("  y  ", "bold"), ("allow this once", ""))
        if rule is not None:
            choices |= {"s": "session", "a": "always"}
            text = written(rule)
            self.notes.whole(("  s  ", "bold"), (f"allow {text} in this session", ""))
            offer = f"always allow {text} here: adds it to {place / LOCAL_FILE}"
            self.notes.whole(("  a  ", "bold"), (offer, ""))
        self.notes.whole(("  n  ", "bold"), ("deny it, with a reason", ""))
        if unseen:
            self.notes.whole(("  v  ", "bold"), ("view the rest of it", ""))
        keys = "/".join([*choices, "v"] if unseen else choices)
        while (said := self._line(f"[{keys}] ")) is not None:
            key = _KEYS.get(said.strip().lower())
            if key in choices:
                return choices[key]
            for part in unseen if key == "v" else ():
                self.notes.whole(part, indent=2)
            if said.strip() and key is None:  # "stop" is not s, and "abort" is not a
                self.notes.whole((f"nothing is allowed yet: type {keys}", "dim"))
        return "later"

    def _write_down(self, rule: RuleText, place: Path) -> None:
        file = add_local_rules(place, [written(rule)], home=Path(self.settings.home))
        self.notes.whole((f"added {written(rule)} to {file}", "dim"))

    async def _ask_user(self, session: Session, call: OpenCall) -> bool:
        """A question of the agent's own."""
        if call.name == _EXIT_PLAN:
            return await self._ask_about_plan(session, call)
        if call.name != _ASK_USER:
            return False  # a tool of the caller's: nobody here can run it
        answers: dict[str, str] = {}
        for question in _questions(call.input):
            answer = self._answer(question)
            if answer is None:
                return False
            answers[str(question.get("question", ""))] = answer
        await session.settle(call.id, msgspec.json.encode({"answers": answers}).decode())
        return True

    async def _ask_about_plan(self, session: Session, call: OpenCall) -> bool:
        if await mode_of(session.log, session.id) != "plan":
            await session.settle(call.id, _NOT_PLANNING, ok=False)
            return True
        self.notes.whole(("", ""))
        for line in str(call.input.get("plan", "")).splitlines():
            self.notes.whole((line, ""), indent=2)
        self.notes.whole(("Carry out this plan?", "bold yellow"))
        for key, meaning in _PLAN_CHOICES:
            self.notes.whole((f"  {key}  ", "bold"), (meaning, ""))
        said = (self._line("[y/e/n] or what to change: ") or "").strip()
        mode = _PLAN_MODES.get(said.lower())
        if mode is not None:
            await session.permit(*mode_update(mode).updates)
            self.notes.whole((f"approved; mode {mode}", "dim"))
            await session.settle(call.id, APPROVED)
        elif said.lower() in ("", "n", "no"):
            self.notes.whole(("still in the mode plan; /mode default leaves it", "dim"))
            await session.settle(call.id, _NOT_NOW)
        else:
            await session.settle(call.id, f"The user wants the plan changed: {said}")
        return True

    def _answer(self, question: Mapping[str, object]) -> str | None:
        self.notes.whole(("", ""))
        self.notes.whole((str(question.get("question", "")), "bold yellow"))
        options = [str(each.get("label", "")) for each in _mappings(question.get("options"))]
        for number, each in enumerate(_mappings(question.get("options")), 1):
            about = each.get("description")
            told = f"  {each.get('label', '')}" + (f": {about}" if about else "")
            self.notes.whole((f"  {number}", "bold"), (told, ""))
        said = self._line("number, or your own words: " if options else "> ")
        if said is None:
            return None
        picked = [part.strip() for part in said.split(",")]
        if options and all(part.isdigit() and 0 < int(part) <= len(options) for part in picked):
            return ", ".join(options[int(part) - 1] for part in picked)
        return said.strip()

    def _line(self, prompt: str) -> str | None:
        """`None`: they left."""
        try:
            return self.keyboard.line(prompt)
        except (EOFError, KeyboardInterrupt):
            self.notes.whole(("", ""))
            return None


def who_asks(asked: Waiting) -> str:
    """A call, and the subagents that have come to it: `explore > bash`."""
    return " > ".join((*asked.path, asked.call.name))


def effect(preview: str | None, given: Mapping[str, object]) -> list[Part]:
    """What a call would do: the diff or the command if the tool can say, else its input."""
    text = preview
    if text is None:
        text = msgspec.json.format(msgspec.json.encode(given), indent=2).decode()
    return [(line, _colour(line, is_diff="+++ " in text)) for line in text.splitlines()]


def _colour(line: str, *, is_diff: bool) -> str:
    if not is_diff:
        return ""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return styles.get(line[:1], "")


def _questions(given: Mapping[str, object]) -> list[Mapping[str, object]]:
    return _mappings(given.get("questions"))


def _mappings(value: object) -> list[Mapping[str, object]]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, object]", each) for each in listed if isinstance(each, dict)]
