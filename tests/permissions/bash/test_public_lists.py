"""The public hostile and everyday command lines, beside the repository, judged as they say."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.permissions.cases import call, decided, rules

from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.permissions.policy import Policy

LISTS = Path(__file__).parents[4] / "shared/data/commands"
DENY = (
    "Bash(rm:*)",
    "Bash(git push:*)",
    "Read(./secrets/**)",
    "Read(.env)",
    "Read(id_rsa)",
    "Read(creds.json)",
    "WebFetch(domain:evil.com)",
)
READ_ONLY = tuple(
    f"Bash({i}:*)" for i in ("ls", "git log", "find", "rg", "sed", "awk", "sort", "echo", "cat")
)
PLAN, DEFAULT = GrantState(mode="plan"), GrantState()
NO_RULES = [(rules(), DEFAULT), (rules(), PLAN)]
DENYING = [
    (rules(deny=DENY), DEFAULT),
    (rules(deny=DENY), PLAN),
    (rules(deny=DENY, allow=READ_ONLY), DEFAULT),
]
ALLOWING_BASH = [(rules(deny=DENY, allow=("Bash",)), DEFAULT)]
SETTINGS = {
    "x": NO_RULES + DENYING,
    "rm": NO_RULES + DENYING + ALLOWING_BASH,
    "push": NO_RULES + DENYING + ALLOWING_BASH,
    "read": DENYING + ALLOWING_BASH,
}

pytestmark = pytest.mark.skipif(
    not LISTS.is_dir(), reason="the lists are not beside the repository"
)


class Line(msgspec.Struct):
    command: str
    kind: Literal["x", "rm", "push", "read", ""] = ""


def lines(name: str) -> list[Line]:
    return msgspec.json.Decoder(Line).decode_lines((LISTS / name).read_bytes())


def is_allowed(line: Line, policy: Policy, standing: GrantState, *, is_sandboxed: bool) -> bool:
    judged = call("bash", command=line.command)
    return decided(judged, policy, standing, is_sandboxed=is_sandboxed).decision == "allow"


def test_no_hostile_command_is_allowed():
    allowed = [
        (line.kind, line.command, at, is_sandboxed)
        for line in lines("hostile.jsonl")
        for at, (policy, standing) in enumerate(SETTINGS[line.kind])
        for is_sandboxed in (False, True)
        if is_allowed(line, policy, standing, is_sandboxed=is_sandboxed)
    ]
    assert allowed == []


def test_at_most_two_percent_of_everyday_commands_need_approval():
    everyday = lines("everyday.jsonl")
    asked = [
        line.command
        for line in everyday
        if not is_allowed(line, rules(), DEFAULT, is_sandboxed=True)
    ]
    assert len(asked) <= len(everyday) * 0.02, asked
