"""`mainspring eval run`, killed again and again: it continues, and nothing is paid or run twice."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest
from tests.environ import clean_environ
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite, new_agent, outcomes

from mainspring.core.events import EvalCaseEnded, ModelRequestEnded
from mainspring.improve.evals.runs.run_log import EvalRun, list_runs, read_run

CASES, TRIALS = 8, 2
STEPS: list[object] = [
    {"calls": [{"tool": "glob", "input": {"pattern": "*"}}]},
    {"calls": [{"tool": "write", "input": {"file_path": "out.txt", "content": "42"}}]},
    {"says": "hello"},
]


def prepare(agent: AgentWithSuite) -> None:
    agent.write_model({"steps": STEPS})
    graders = [
        {"type": "contains", "text": "hello"},
        {"type": "file", "path": "out.txt", "equals": "42"},
        {"type": "trajectory", "order": ["glob", "write"]},
    ]
    cases = [
        {"id": f"c{at}", "input": f"go {at}", "mode": "acceptEdits", "graders": graders}
        for at in range(CASES)
    ]
    agent.write_suite({"cases": cases, "trials": TRIALS, "parallel": 3})


def run_until(agent: AgentWithSuite, events: int | None) -> list[dict[str, object]]:
    """Run the command; kill it as soon as the log has so many events more, or let it end."""
    command = [sys.executable, "-m", "mainspring", "eval", "run", "-m", MODEL, "--json"]
    before = event_count(agent)
    with subprocess.Popen(
        command, cwd=agent.folder, env=clean_environ(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while events is not None and process.poll() is None:
            if event_count(agent) - before >= events:
                process.send_signal(signal.SIGKILL)
                break
        seen = [json.loads(line) for line in process.stdout if line.endswith("\n")]
        status = process.wait(timeout=60)
    assert status in (0, -signal.SIGKILL)
    return seen


def event_count(agent: AgentWithSuite) -> int:
    file = agent.folder / ".mainspring/mainspring.db"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        try:
            return int(store.execute("select count(*) from event").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # it is being made


async def last_run(agent: AgentWithSuite) -> tuple[EvalRun, int, Counter[str], Counter[str]]:
    """The run, how many there are, and how often each trial was ended and each request was paid."""
    async with agent.runner() as runner:
        log = runner.runtime.log
        created = await list_runs(log, "tested", "basics")
        run = await read_run(log, created[-1].run_id)
        ended = Counter(
            f"{event.payload.case_id}-{event.payload.trial}"
            for event in await log.read(run.id)
            if isinstance(event.payload, EvalCaseEnded)
        )
        paid: Counter[str] = Counter()
        for item in run.results.values():
            for event in await log.read(item.session_id):
                is_paid = (
                    isinstance(event.payload, ModelRequestEnded) and not event.payload.is_error
                )
                paid[item.session_id] += is_paid
        return run, len(created), ended, paid


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_run_killed_at_random_points_pays_for_every_trial_once(agent: AgentWithSuite):
    prepare(agent)
    rng = random.Random(17)
    for _ in range(8):
        run_until(agent, rng.randrange(1, 60))
    rest = run_until(agent, None)
    run, runs, ended, paid = await last_run(agent)
    assert runs == 1
    assert len(ended) == CASES * TRIALS
    assert set(ended.values()) == {1}
    assert set(paid.values()) == {len(STEPS)}
    assert 0 < len(rest) < CASES * TRIALS
    other = new_agent(agent.folder.parent / "other")
    prepare(other)
    run_until(other, None)
    whole, *_ = await last_run(other)
    assert outcomes(run) == outcomes(whole)
    assert _verdicts(run) == _verdicts(whole)


def _verdicts(run: EvalRun) -> dict[tuple[str, int], object]:
    return {
        key: (item.outcome, item.score, item.grades, item.turns, item.tool_calls)
        for key, item in sorted(run.results.items())
    }
