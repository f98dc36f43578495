"""`make demo-evolve` shows what it promises, with at most 100 scripted calls in its campaign."""

import re
import subprocess
import sys

import pytest
from tests.environ import clean_environ
from tests.project.test_project_files import ROOT


@pytest.mark.slow
def test_the_demo_shows_a_refusal_a_promotion_and_a_rollback():
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo/evolve.py")],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: it quotes a case" in done.stdout
    assert "promoted by the gate" in done.stdout
    assert "rolled back to version 1" in done.stdout
    calls = re.search(r"\((\d+) metric calls, (\d+) proposer calls, (\d+) sealed", done.stdout)
    assert calls is not None
    assert sum(map(int, calls.groups())) <= 100
