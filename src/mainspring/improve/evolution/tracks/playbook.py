"""A playbook: short rules, each with an id and with counts of how often it helped and harmed. Rules
are added and counted by code, and the file is never rewritten as a whole."""

from __future__ import annotations

import hashlib
import re

from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.tracks.folder_texts import PLAYBOOK

_BULLET = re.compile(
    r"^- \[(?P<id>[a-z0-9-]+)\] helpful=(\d+) harmful=(\d+) :: (?P<text>.*)$", re.M
)
_MAX_TEXT = 400
"""Characters of a rule: it is read in every session."""
_MIN_USES = 3  # before a rule that harmed more than it helped is removed
_HARMFUL_SHARE = 0.6
"""A rule that harmed in this share of at least three uses is proposed for removal."""


def add_bullet(text: str, rule: str) -> str:
    """The playbook with one more rule, unless it has it already."""
    rule = " ".join(rule.split())[:_MAX_TEXT]
    if not rule or any(match["text"] == rule for match in _BULLET.finditer(text)):
        return text
    name = hashlib.sha256(rule.encode()).hexdigest()[:8]
    ending = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{ending}- [{name}] helpful=0 harmful=0 :: {rule}\n"


def count_use(text: str, name: str, *, has_helped: bool) -> str:
    """The playbook with one more use of a rule counted."""

    def counted(match: re.Match[str]) -> str:
        if match["id"] != name:
            return match[0]
        helpful, harmful = int(match[2]) + has_helped, int(match[3]) + (not has_helped)
        return f"- [{name}] helpful={helpful} harmful={harmful} :: {match['text']}"

    return _BULLET.sub(counted, text)


def harmful_bullets(text: str) -> list[str]:
    """The ids of rules that harm more than they help."""
    return [
        match["id"]
        for match in _BULLET.finditer(text)
        if (uses := int(match[2]) + int(match[3])) >= _MIN_USES
        and int(match[3]) >= _HARMFUL_SHARE * uses
    ]


def remove_bullet(text: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(f"- [{name}] "))


def count_bullets(candidate: Candidate) -> int:
    return len(_BULLET.findall(candidate.texts.get(PLAYBOOK, "")))
