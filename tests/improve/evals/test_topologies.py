"""One agent beside several: real subagents, one table, and advice against more agents."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals import eval as eval_command
from mainspring.edges.cli.evals.eval import RunningArguments, SelectionArguments
from mainspring.edges.cli.evals.eval_report import ReportFiles
from mainspring.improve.evals.gate.comparison import CaseResult, compare, summarize
from mainspring.improve.evals.topologies import Topology, TopologyResult, advice

TASK = "How much is 6 x 7?"


def delegates(kind: str, count: int, prompt: str) -> dict[str, object]:
    given = {"subagent_type": kind, "prompt": prompt, "description": "x"}
    return {"calls": [{"tool": "agent", "input": {**given}} for _ in range(count)]}


def run_command(agent: AgentWithSuite, names: str, *, gate: bool = False):
    return eval_command.run(
        agent.settings,
        cases=SelectionArguments(),
        running=RunningArguments(model=MODEL, topology=names, gate=gate),
        files=ReportFiles(),
    )


async def test_several_agents_are_compared_and_advised_against_if_one_suffices(
    agent: AgentWithSuite, capfd: pytest.CaptureFixture[str]
):
    agent.write_suite(
        {
            "cases": [
                {"id": f"c{at}", "input": TASK, "graders": [{"type": "contains", "text": "42"}]}
                for at in range(3)
            ]
        }
    )
    agent.write_model(
        {"when": "Solve", "steps": [{"says": "42"}]},
        {"when": TASK, "steps": [delegates("solver", 3, "Solve it"), {"says": "42"}]},
    )
    assert await run_command(agent, "single,vote") == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()]
    calls = {row[0]: row[8] for row in rows if row[0] in ("single", "vote")}
    assert calls == {"single": "0.0", "vote": "3.0"}  # one agent alone has nobody to call
    agent.write_model({"steps": [{"says": "42"}]})
    assert await run_command(agent, "single, manager") == 0
    out = capfd.readouterr().out
    assert "manager called no subagent in 3 of its trials" in out
    assert "use one agent: it passes 100% of the cases" in out
    with pytest.raises(InvalidInput, match="single, vote, peers, manager"):
        await run_command(agent, "single,swarm")
    with pytest.raises(InvalidInput, match="--gate"):
        await run_command(agent, "single", gate=True)


def result(topology: Topology, cost: str, passes: Callable[[int], bool]) -> TopologyResult:
    cases = {f"c{at}": CaseResult(trials=(float(passes(at)),)) for at in range(60)}
    single = {f"c{at}": CaseResult(trials=(float(at < 30),)) for at in range(60)}
    return TopologyResult(
        topology=topology,
        summary=summarize(cases),
        cost_usd=Decimal(cost),
        seconds=1.0,
        subagents=3.0,
        idle_trials=0,
        comparison=None if topology == "single" else compare(single, cases),
    )


def test_more_agents_are_recommended_only_if_the_paired_test_finds_them_better():
    single = result("single", "1", lambda at: at < 30)
    vote = result("vote", "4", lambda at: at < 31)
    manager = result("manager", "3", lambda at: at < 50)
    [line] = [text for text in advice([single, vote]) if "use one agent" in text]
    assert "50% of the cases" in line
    assert "up to 4.0 times as much" in line
    [line] = advice([single, vote, manager])
    assert line.startswith("manager is better than one agent at 3.0 times the cost: better: +33.3")
    [line] = advice([vote])
    assert line.startswith("run `single` too")
