"""A skill's text with what it is called with: arguments, and facts about the session.

As Claude Code does it: `$ARGUMENTS` is all of them as they were typed, `$0` and `$ARGUMENTS[0]` the
first of them, `$name` the one that the skill has given that name. One pass, so that nothing in what
is put in is ever taken for a placeholder.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property

from mainspring.runtime.skills.skill import Skill

_MOST_NAMES = 100
_FACT = r"\$\{(?:CLAUDE|MAINSPRING)_(?P<fact>SESSION_ID|SKILL_DIR|PROJECT_DIR|EFFORT)\}"
_ONLY_FACTS = re.compile(_FACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a skill's text can ask for, besides its arguments."""

    session_id: str
    project: str = ""
    """The folder that is worked in."""
    effort: str = "none"


def substituted(body: str, arguments: str, skill: Skill, facts: Facts) -> str:
    """Arguments that the text does not ask for come at its end."""
    filling = Filling(arguments, skill, facts)
    return filling.fill(body) + filling.rest()


def with_facts(text: str, skill: Skill, facts: Facts) -> str:
    """For what takes no arguments: permission rules."""
    return Filling("", skill, facts).only_facts(text)


@dataclass
class Filling:
    """One call of a skill, whose text is filled in piece by piece."""

    arguments: str
    skill: Skill
    facts: Facts
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
        names = self.skill.arguments[:_MOST_NAMES]
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
            "SESSION_ID": self.facts.session_id,
            "SKILL_DIR": self.skill.folder,
            "PROJECT_DIR": self.facts.project,
            "EFFORT": self.facts.effort,
        }[name]
