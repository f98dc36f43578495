"""How agents do in production: `mainspring slo`, and `mainspring cost` by outcome and tool."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
from tests.cli.conftest import Run, opened
from tests.written_files import write_file

from mainspring.core.events import (
    AgentToolResult,
    AgentToolUse,
    BudgetReserved,
    BudgetSettled,
    Failure,
    FeedbackGiven,
    KnownPayload,
    ModelRequestEnded,
    ModelRequestStarted,
    OutcomeEvaluationEnded,
    RatedSubject,
    SessionCreated,
    StatusIdle,
    StatusRunning,
    StopReason,
    TextRubric,
    ToolCallAuthorized,
    ToolCallStarted,
    Usage,
    UserDefineOutcome,
)
from mainspring.core.sender import Origin
from mainspring.log.writer import Writer

DEMANDS = """name: clerk
slo:
  max_errors_per_10000_calls: {errors}
  min_share_without_person: 0.5
"""
RUNNING, IDLE = StatusRunning(), StatusIdle(stop_reason=StopReason(type="end_turn"))


async def request(writer: Writer, usd: str, *, is_error: bool = False) -> None:
    [start] = await writer.append(ModelRequestStarted(model="m"))
    await writer.append(
        BudgetReserved(reservation_id=start.id, cost_usd=usd),
        ModelRequestEnded(model_request_start_id=start.id, model_usage=Usage(), is_error=is_error),
        BudgetSettled(reservation_id=start.id, cost_usd=usd),
    )


async def call(writer: Writer, name: str, error: Failure | None = None) -> None:
    [use] = await writer.append(AgentToolUse(name=name, input={}))
    await writer.append(ToolCallStarted(tool_use_id=use.id, idempotency_key="k", sandbox="bwrap"))
    done = AgentToolResult(tool_use_id=use.id, is_error=error is not None, error=error)
    await writer.append(done)


async def outcome(writer: Writer, id_: str, verdicts: Sequence[str]) -> None:
    rubric = TextRubric(content="it is good")
    await writer.append(UserDefineOutcome(description="do it", rubric=rubric, outcome_id=id_))
    for at, verdict in enumerate(verdicts):
        await request(writer, "0.25")
        await writer.append(
            OutcomeEvaluationEnded(
                outcome_evaluation_start_id="s",
                outcome_id=id_,
                iteration=at,
                result=verdict,  # pyright: ignore[reportArgumentType] (one of them)
                explanation="",
                usage=Usage(),
            )
        )


async def write(store: Path) -> None:
    asked = ToolCallAuthorized(tool_use_id="t", decision="ask", gate="default")
    rated = FeedbackGiven(subject=RatedSubject(type="session", id="s"), rating="bad", text="slow")
    more: list[list[KnownPayload]] = [[asked], [rated], []]
    async with opened(store) as log:
        for number, payloads in enumerate(more):
            session = await log.create(SessionCreated(agent_name="clerk"))
            writer = await log.hold(session.id, owner="w")
            await writer.append(RUNNING)
            await request(writer, "0.5")
            await call(writer, "bash", "failed")  # its own business
            await call(writer, "search", "timed_out" if number == 0 else None)
            await writer.append(IDLE, *payloads)
            if number == 2:
                await outcome(writer, "outc_1", ["needs_revision", "satisfied"])
                await outcome(writer, "outc_2", ["failed"])
                await request(writer, "0.01")
            await writer.release()
        lab = await log.create(SessionCreated(agent_name="clerk", origin=Origin(type="eval")))
        writer = await log.hold(lab.id, owner="w")
        for _ in range(5):
            await request(writer, "0", is_error=True)
        await writer.release()


def test_slo_compares_objectives_with_recorded_sessions(place: Path, store: Path, mainspring: Run):
    anyio.run(write, store)
    (place / "agent.yaml").write_text(DEMANDS.format(errors=10_000))
    met = mainspring("slo", "--json")
    assert met.returncode == 0, met.stderr
    [view] = [json.loads(line) for line in met.stdout.splitlines()]
    levels = view["levels"]
    assert (levels["agent"], levels["sessions"], levels["calls"]) == ("clerk", 3, 13)
    assert (levels["errors"], levels["without_person"], levels["bad"]) == (1, 2, 1)
    assert view["missed"] == []
    (place / "agent.yaml").write_text(DEMANDS.format(errors=10))
    missed = mainspring("slo")
    assert missed.returncode == 1
    assert "clerk misses its objective: 769.2 errors per 10,000 calls, at most 10" in missed.stdout
    (place / "agent.yaml").write_text("slo: {min_share_without_person: 80}\n")
    wrong = mainspring("slo")
    assert wrong.returncode != 0
    assert "agent.yaml:1" in wrong.stderr


def test_cost_by_outcome_shows_the_cost_of_satisfied_outcomes(store: Path, mainspring: Run):
    anyio.run(write, store)
    shown = mainspring("cost", "--by", "outcome")
    assert "1 of 2 outcomes satisfied, $0.7500 for each" in shown.stdout
    by = mainspring("cost", "--by", "outcome", "--json").stdout.splitlines()
    costs = {view["key"]: view["cost_usd"] for view in map(json.loads, by)}
    assert costs == {
        "no outcome": "1.51",
        "outc_1 satisfied": "0.50",
        "outc_2 failed": "0.25",
    }


def test_cost_by_tool_uses_the_given_price(store: Path, mainspring: Run):
    anyio.run(write, store)
    lines = mainspring("cost", "--by", "tool", "--price", "search=0.01", "--json").stdout
    bills = {view["tool"]: view for view in map(json.loads, lines.splitlines())}
    assert (bills["search"]["calls"], bills["search"]["cost_usd"]) == (3, "0.03")
    assert (bills["bash"]["failed"], bills["bash"]["cost_usd"]) == (3, "0")
    assert bills["bash"]["sandbox_seconds"] >= 0
    wrong = mainspring("cost", "--by", "tool", "--price", "search")
    assert "web_search=0.01" in wrong.stderr


SUITE = """trials: 8
graders: [{type: contains, text: hello}]
cases: [{id: greets, input: hi}]
"""


def test_a_drill_runs_a_suite_with_the_remaining_models(place: Path, mainspring: Run):
    (place / "agent.yaml").write_text("name: clerk\n")
    write_file(place / "evals/basics.yaml", SUITE)
    for name, word in (("good", "hello"), ("bad", "sorry")):
        (place / f"{name}.yaml").write_text(f"- steps: [{{says: {word}}}]\n")
    good, bad = "scripted:good.yaml", "scripted:bad.yaml"
    assert mainspring("eval", "run", "-m", good).returncode == 0
    failed = mainspring("models", "drill", f"{good},{bad}", "--suite", "basics")
    assert failed.returncode == 1, failed.stderr
    assert "regressed: greets" in failed.stdout
    assert mainspring("models", "drill", f"{bad},{good}", "--suite", "basics").returncode == 0
    alone = mainspring("models", "drill", good, "--suite", "basics")
    assert "nothing to fail over to" in alone.stderr


def test_graded_production_sessions_are_shown_beside_suite_results(place: Path, mainspring: Run):
    grade = "grade: {suite: basics, share: 1}"
    (place / "agent.yaml").write_text(f"name: clerk\n{grade}\n")
    write_file(place / "evals/basics.yaml", SUITE)
    (place / "good.yaml").write_text("- steps: [{says: hello}]\n")
    model = ("-m", "scripted:good.yaml")
    said = mainspring("run", "hi", *model)
    assert "ignored; `mainspring validate`" not in said.stderr
    mainspring("eval", "run", *model)
    graded = mainspring("eval", "grade", "--now", *model)
    assert "graded 1 session" in graded.stderr, graded.stderr
    shown = (
        "basics: production 100.0% (95% confidence: 21% to 100%) of graded sessions (1); lab 100.0%"
    )
    assert shown in graded.stdout
    for command in (["eval", "trend"], ["slo"]):
        assert shown in mainspring(*command).stdout
    again = mainspring("eval", "grade", "--now", *model)
    assert "graded 0 sessions" in again.stderr
