"""The text of a skill call: arguments and session facts are substituted as in Claude Code; and the
marker of a call that a user typed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.runtime.skills.skill import Skill

_MAX_NAMES = 100  # of arguments
_FACT = r"\$\{(?:CLAUDE|MAINSPRING)_(?P<fact>SESSION_ID|SKILL_DIR|PROJECT_DIR|EFFORT)\}"
_ONLY_FACTS = re.compile(_FACT)


class SkillFacts(Struct, frozen=True, kw_only=True):
    """The values that a skill's text can refer to besides its arguments."""

    session_id: str
    project: str = ""
    """The working folder."""
    effort: str = "none"


def substitute_facts(text: str, skill: Skill, facts: SkillFacts) -> str:
    """Substitute only facts, in texts that take no arguments, such as permission rules."""
    return SkillSubstitution("", skill, facts).only_facts(text)


@dataclass
class SkillSubstitution:
    """One call of a skill, whose text is filled in piece by piece."""

    arguments: str
    skill: Skill
    skill_facts: SkillFacts
    _has_used_arguments: bool = field(default=False, init=False)

    def fill(self, text: str) -> str:
        return self._placeholders.sub(self._replacement, text)

    def only_facts(self, text: str) -> str:
        return _ONLY_FACTS.sub(lambda match: self._fact(match["fact"]), text)

    def unused_arguments(self) -> str:
        """The arguments, if no piece had a placeholder for them."""
        arguments = self.arguments.strip()
        return f"\n\nARGUMENTS: {arguments}" if arguments and not self._has_used_arguments else ""

    @cached_property
    def _words(self) -> list[str]:
        """The arguments split as by a shell; if a quote is not closed, at spaces."""
        try:
            return shlex.split(self.arguments)
        except ValueError:
            return self.arguments.split()

    @cached_property
    def _positions(self) -> dict[str, int]:
        names = self.skill.arguments[:_MAX_NAMES]
        return {name: index for index, name in reversed(list(enumerate(names)))}

    @cached_property
    def _placeholders(self) -> re.Pattern[str]:
        """A backslash before an argument's placeholder escapes it."""
        names = "|".join(map(re.escape, sorted(self._positions, key=len, reverse=True)))
        name_pattern = rf"|(?P<name>{names})(?!\w)" if names else "|(?P<name>(?!))"
        return re.compile(
            r"(?P<escape>(?<!\\)\\)?\$(?:"
            r"ARGUMENTS\[(?P<index>[0-9]{1,6})\]|(?P<all>ARGUMENTS)(?!\w)"
            rf"|(?P<number>[0-9]{{1,6}})(?!\w){name_pattern})|{_FACT}"
        )

    def _replacement(self, match: re.Match[str]) -> str:
        if match["fact"] is not None:
            return self._fact(match["fact"])
        if match["escape"] is not None:
            return match[0][1:]
        if match["all"] is not None:
            self._has_used_arguments = True
            return self.arguments.strip()
        if match["name"] is not None:
            return self._word(self._positions[match["name"]]) or ""
        word = self._word(int(match["index"] or match["number"]))
        return match[0] if word is None else word

    def _word(self, index: int) -> str | None:
        if index >= len(self._words):
            return None
        self._has_used_arguments = True
        return self._words[index]

    def _fact(self, name: str) -> str:
        return {
            "SESSION_ID": self.skill_facts.session_id,
            "SKILL_DIR": self.skill.folder,
            "PROJECT_DIR": self.skill_facts.project,
            "EFFORT": self.skill_facts.effort,
        }[name]


_CALL_TEXT = "<command-name>/{name}</command-name>\n<command-args>{arguments}</command-args>"
_CALL_PATTERN = re.compile(
    r"<command-name>(/[^<\n]{1,200})</command-name>\n<command-args>(.*)</command-args>", re.DOTALL
)


def skill_call_block(name: str, arguments: str) -> TextBlock:
    """The block before the text of the skill."""
    return TextBlock(_CALL_TEXT.format(name=name, arguments=arguments))


def typed_text(message: tuple[Block, ...]) -> str:
    """A message as the user typed it: for a skill call, only the call."""
    first = message[0] if message else None
    match = _CALL_PATTERN.fullmatch(first.text) if isinstance(first, TextBlock) else None
    return f"{match[1]} {match[2]}".rstrip() if match else plain_text(message)
