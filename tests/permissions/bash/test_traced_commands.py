"""What an allowed command does, by a trace of its system calls, is within what was judged."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.permissions.bash.command_lists import Attack, attacks
from tests.permissions.bash.differential import Differential
from tests.permissions.bash.program_grammar import productions
from tests.permissions.bash.program_writer import ProgramWriter
from tests.permissions.bash.trace import unavailable

_REASON = unavailable()
traced = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


@pytest.fixture(scope="module")
def differential() -> Iterator[Differential]:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: another uid has to get there
        yield Differential(Path(folder))


@traced
def test_an_allowed_command_reads_changes_and_runs_only_what_was_analyzed(
    differential: Differential,
):
    _fuzz(differential, texts=120)


@traced
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_allowed_commands_read_change_and_run_only_what_was_analyzed(
    differential: Differential,
):
    _fuzz(differential, texts=4000)
    assert len(differential.counts.reached) > len(productions()) // 10


def _fuzz(differential: Differential, *, texts: int) -> None:
    told: list[str] = []
    differential.fuzz(texts, ProgramWriter(random.Random(11)), told.append)
    assert not told
    assert differential.counts.executed > texts // 20


_FORBIDDEN = {
    "x": ("none", "deny", "deny+read-only", "plan", "plan+deny", "acceptEdits"),
    "rm": ("none", "deny", "deny+read-only", "plan", "plan+deny", "deny+Bash"),
    "read": ("deny", "deny+read-only", "plan+deny", "deny+Bash"),
    "outside": ("none", "plan"),
    "write_outside": ("none", "plan", "acceptEdits"),
}


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.command)
def test_known_attacks_are_not_allowed(differential: Differential, attack: Attack):
    allowing = differential.allowing(attack.command)
    if attack.kind == "outside":  # a sandbox has nothing outside to be read
        allowing = [item for item in allowing if not item[1]]
    assert not [name for name, _ in allowing if name in _FORBIDDEN[attack.kind]]


@traced
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cat .env", "reads a denied file"),
        ("git show HEAD:.env", "shows a denied file"),
        ("git log -p", "shows a denied file"),
        ("touch out", "changes"),
        ("cd nest && git status", "runs"),
        ("make -n", "runs"),
        ("bash -c '(exec 3<>/dev/udp/127.0.0.1/9)'", "sends"),
        ("cat ~/private.txt", "reads"),
    ],
)
def test_the_trace_detects_forbidden_effects(differential: Differential, text: str, kind: str):
    found = differential.found("deny", differential.run(text), differential.judged("true"))
    assert kind in {sort for sort, _ in found}


@traced
@pytest.mark.parametrize("text", ["git status", "ls -la | head", "id; date", "wc -l < README.md"])
def test_the_trace_reports_nothing_for_harmless_commands(differential: Differential, text: str):
    assert not differential.found("deny", differential.run(text), differential.judged(text))
