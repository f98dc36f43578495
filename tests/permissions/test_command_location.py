"""A shell stays in the folder that a command took it to: later commands are judged there."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.permissions.cases import WORKSPACE, decided, place, rules
from tests.row_checks import for_each

from mainspring.core.events import AgentToolUse
from mainspring.core.tool import Traits
from mainspring.harness.permissions.call_analysis import AnalyzedCall, analyze_call, location_after
from mainspring.harness.permissions.grant_state import GrantState
from mainspring.harness.state.session_state import SessionState

EDITS = GrantState(mode="acceptEdits")
FOLDERS = frozenset(f"{WORKSPACE}/{name}" for name in (".git", "src"))


def analyze_after(before: str, command: str) -> AnalyzedCall:
    state = SessionState()
    state.apply(AgentToolUse(name="Bash", input={"command": before}))
    here = replace(place(), is_folder=FOLDERS.__contains__)
    return analyze_call(
        "bash", {"command": command}, Traits(), location_after(state.commands, here)
    )


@for_each(
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
def test_edits_need_approval_if_an_earlier_command_may_have_changed_the_folder(before: str):
    judged = analyze_after(before, "echo ../evil > commondir")
    assert decided(judged, standing=EDITS, is_sandboxed=True).decision == "ask"


def test_a_denied_folder_is_denied_from_inside():
    judged = analyze_after("cd src", "echo x > a.py")
    policy = rules(deny=("Edit(src/**)",))
    assert decided(judged, policy, EDITS, is_sandboxed=True).decision == "deny"


@pytest.mark.parametrize("before", ["ls", "cd src", "cd 'src' && make", "cd"])
def test_edits_are_allowed_after_a_plain_change_of_folder(before: str):
    judged = analyze_after(before, "mkdir new")
    assert decided(judged, standing=EDITS, is_sandboxed=True).decision == "allow"


REPOSITORIES = {
    WORKSPACE: {".git", "src", "nest", "bare"},
    f"{WORKSPACE}/nest": {".git"},
    f"{WORKSPACE}/bare": {"HEAD", "objects", "refs", "config"},
}


def decision_on(
    *commands: str, names: Mapping[str, set[str]] = REPOSITORIES, standing: GrantState | None = None
) -> str:
    """On the last one, after the others."""
    state = SessionState()
    for before in commands[:-1]:
        state.apply(AgentToolUse(name="Bash", input={"command": before}))
    folders = {f"{WORKSPACE}/{item}" for item in ("src", "nest", "nest/deep", "bare")}

    def names_in(folder: str) -> set[str]:
        return names.get(folder, set())

    here = replace(place(), names=names_in, is_folder=folders.__contains__)
    judged = analyze_call(
        "bash", {"command": commands[-1]}, Traits(), location_after(state.commands, here)
    )
    policy = rules(allow=("Bash(git status:*)",))
    return decided(judged, policy, standing, is_sandboxed=True).decision


@for_each(
    "commands",
    [
        ("cd nest", "git status"),
        ("cd nest && ls", "ls && git status"),
        ("cd bare", "git status"),
        ("cd nest/deep", "git status"),
        ("cd $X", "git status"),
        ("cd nest && git status",),
        ("git -C nest status",),
        ("git -C nest/deep status",),
        ("cd nest; git -C . status",),
        ("cd .. && git status",),
        ("cd /tmp && git status",),
        ("git --git-dir=nest/.git status",),
        ("GIT_DIR=nest/.git git status",),
        ("git -C src -C ../nest status",),
        ("cd src && cd ../nest && git status",),
        ("pushd nest && git status",),
        ("cd - && git status",),
    ],
)
def test_git_needs_approval_where_another_repository_may_be(commands: tuple[str, ...]):
    assert decision_on(*commands) == "ask"
    assert decision_on(*commands, standing=EDITS) == "ask"


@pytest.mark.parametrize(
    "commands",
    [
        ("git status",),
        ("cd src", "git status"),
        ("cd src && git status",),
        ("git -C . status",),
        ("git -C src status",),
        ("cd src/a/b && git log --oneline -5",),
        (f"cd {WORKSPACE} && git status",),
    ],
)
def test_git_is_allowed_wherever_it_finds_the_repository_of_the_workspace(
    commands: tuple[str, ...],
):
    assert decision_on(*commands) == "allow"


def test_a_workspace_that_looks_like_a_bare_repository_is_not_trusted():
    assert decision_on("git status", names={WORKSPACE: {"HEAD", "objects", "refs"}}) == "ask"
    assert decision_on("git status", names={WORKSPACE: {".git", "HEAD", "objects"}}) == "allow"


def test_python_m_needs_approval_if_the_workspace_shadows_the_module():
    assert decision_on("python3 -m json.tool a.json") == "allow"
    for name in ("json", "json.py", "argparse.py", "runpy.cpython-311-x86_64-linux-gnu.so"):
        assert decision_on("python3 -m json.tool a.json", names={WORKSPACE: {name}}) == "ask"
    assert decision_on("python3 -m pip list") == "allow"
    for name in ("pip", "pip.py", "json.py"):
        assert decision_on("python3 -m pip list", names={WORKSPACE: {name}}) == "ask"


def test_git_symbolic_ref_is_allowed_only_for_reading():
    assert decision_on("git symbolic-ref --short HEAD") == "allow"
    for words in ("HEAD refs/heads/x", "HEA*", "-d HEAD", "$x"):
        assert decision_on(f"git symbolic-ref {words}") == "ask"
