"""How a call of a skill becomes text: arguments and session facts substituted as Claude Code
does it, and the marker of a call that a user typed.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.runtime.skills.skill import Skill

_MAX_NAMES = 100
_FACT = r"\$\{(?:CLAUDE|MAINSPRING)_(?P<fact>SESSION_ID|SKILL_DIR|PROJECT_DIR|EFFORT)\}"
_ONLY_FACTS = re.compile(_FACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFacts:
    """What a skill's text can ask for, besides its arguments."""

    session_id: str
    project: str = ""
    """The folder that is worked in."""
    effort: str = "none"


def substitute_arguments(body: str, arguments: str, skill: Skill, skill_facts: SkillFacts) -> str:
    """Arguments that the text does not ask for come at its end."""
    filling = SkillSubstitution(arguments, skill, skill_facts)
    return filling.fill(body) + filling.rest()


def substitute_facts(text: str, skill: Skill, skill_facts: SkillFacts) -> str:
    """For what takes no arguments: permission rules."""
    return SkillSubstitution("", skill, skill_facts).only_facts(text)


@dataclass
class SkillSubstitution:
    """One call of a skill, whose text is filled in piece by piece."""

    arguments: str
    skill: Skill
    skill_facts: SkillFacts
    _is_asked_for: bool = field(default=False, init=False)

    def fill(self, text: str) -> str:
        return self._placeholders.sub(self._filled, text)

    def only_facts(self, text: str) -> str:
        return _ONLY_FACTS.sub(lambda found: self._fact(found["fact"]), text)

    def rest(self) -> str:
        """The arguments, if no piece had a place for any of them."""
        given = self.arguments.strip()
        return f"\n\nARGUMENTS: {given}" if given and not self._is_asked_for else ""

    @cached_property
    def _words(self) -> list[str]:
        """As a shell would cut them; if a quote is not closed, at every blank."""
        try:
            return shlex.split(self.arguments)
        except ValueError:
            return self.arguments.split()

    @cached_property
    def _positions(self) -> dict[str, int]:
        names = self.skill.arguments[:_MAX_NAMES]
        return {name: at for at, name in reversed(list(enumerate(names)))}

    @cached_property
    def _placeholders(self) -> re.Pattern[str]:
        """A single backslash before a placeholder of an argument keeps it as it is."""
        names = "|".join(map(re.escape, sorted(self._positions, key=len, reverse=True)))
        named = rf"|(?P<name>{names})(?!\w)" if names else "|(?P<name>(?!))"
        return re.compile(
            r"(?P<escape>(?<!\\)\\)?\$(?:"
            r"ARGUMENTS\[(?P<index>[0-9]{1,6})\]|(?P<all>ARGUMENTS)(?!\w)"
            rf"|(?P<number>[0-9]{{1,6}})(?!\w){named})|{_FACT}"
        )

    def _filled(self, found: re.Match[str]) -> str:
        if found["fact"] is not None:
            return self._fact(found["fact"])
        if found["escape"] is not None:
            return found[0][1:]
        if found["all"] is not None:
            self._is_asked_for = True
            return self.arguments.strip()
        if found["name"] is not None:
            return self._word(self._positions[found["name"]]) or ""
        word = self._word(int(found["index"] or found["number"]))
        return found[0] if word is None else word

    def _word(self, at: int) -> str | None:
        if at >= len(self._words):
            return None
        self._is_asked_for = True
        return self._words[at]

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
    """What comes before the text of the skill."""
    return TextBlock(_CALL_TEXT.format(name=name, arguments=arguments))


def typed_text(message: tuple[Block, ...]) -> str:
    """A user's message in the user's own words: of a skill that it calls, the call alone."""
    first = message[0] if message else None
    called = _CALL_PATTERN.fullmatch(first.text) if isinstance(first, TextBlock) else None
    return f"{called[1]} {called[2]}".rstrip() if called else plain_text(message)
