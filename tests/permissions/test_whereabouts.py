"""A shell stays in the folder that a command took it to: later commands are judged there."""

from dataclasses import replace

import pytest
from tests.permissions.cases import WORKSPACE, decided, place, rules

from mainspring.core.events import AgentToolUse
from mainspring.core.tool import Traits
from mainspring.harness.gear import Gear
from mainspring.harness.permissions.judged import Judged, after, judged_call
from mainspring.harness.permissions.standing import Standing

EDITS = Standing(mode="acceptEdits")
FOLDERS = frozenset(f"{WORKSPACE}/{name}" for name in (".git", "src"))


def judged_after(before: str, command: str) -> Judged:
    gear = Gear()
    gear.apply(AgentToolUse(name="Bash", input={"command": before}))
    here = replace(place(), is_folder=FOLDERS.__contains__)
    return judged_call("bash", {"command": command}, Traits(), after(gear.commands, here))


@pytest.mark.parametrize(
    "before",
    [
        "cd .git",
        'c""d .git',
        "c''d .git",
        "c\\d .git",
        "c\\\nd .git",
        "$'\\x63d' .git",
        "builtin cd .git",
        "cd ${PWD}/.git",
        "cd $HOME/.git",
        "cd $(echo .git)",
        "cd .gi*",
        "pushd .git",
        "pushd .git; cd ..; popd",
        "if cd .git; then ls; fi",
        "for d in .git; do cd $d; done",
        "eval c\\d .git",
        ". ./go",
        "f() { cd .git; }; f",
    ],
)
def test_wherever_an_earlier_command_may_have_gone_edits_do_not_pass_unseen(before: str):
    judged = judged_after(before, "echo ../evil > commondir")
    assert decided(judged, standing=EDITS, is_sandboxed=True).decision == "ask"


def test_a_denied_folder_is_denied_from_inside():
    judged = judged_after("cd src", "echo x > a.py")
    policy = rules(deny=("Edit(src/**)",))
    assert decided(judged, policy, EDITS, is_sandboxed=True).decision == "deny"


@pytest.mark.parametrize("before", ["ls", "cd src", "cd 'src' && make", "cd"])
def test_where_it_went_openly_edits_pass_as_before(before: str):
    judged = judged_after(before, "mkdir new")
    assert decided(judged, standing=EDITS, is_sandboxed=True).decision == "allow"
