"""An outcome that the user defines: the work is graded, and revised until the rubric is met."""

from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import Stage, echo, stage

from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.events import (
    FileRubric,
    ModelRequestEnded,
    OutcomeEvaluationEnded,
    OutcomeEvaluationStarted,
    TextRubric,
    UserDefineOutcome,
    UserInterrupt,
)
from mainspring.core.model import ToolSpec
from mainspring.core.model_facts import ModelFacts, Price
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits
from mainspring.harness.outcomes import estimate_grading
from mainspring.harness.stop_reasons import Ended

MET = says('It is. {"criteria": [{"criterion": "Sources", "reason": "seen", "met": true}]}')
NOT_MET = says(
    '{"criteria": [{"criterion": "Sources", "reason": "row 2 has none", "met": false,'
    ' "change": "add a source to row 2"}]}'
)


def define_outcome(
    rubric: str = "Every rate has a source.", *, max_iterations: int | None = None
) -> UserDefineOutcome:
    return UserDefineOutcome(
        description="A table of rates",
        rubric=TextRubric(content=rubric),
        max_iterations=max_iterations,
    )


async def verdicts(play: Stage) -> list[tuple[int, str]]:
    return [
        (event.payload.iteration, event.payload.result)
        for event in await play.events()
        if isinstance(event.payload, OutcomeEvaluationEnded)
    ]


async def test_work_that_meets_the_rubric_is_satisfied(tmp_path: Path):
    model = Scripted(says("Here is the table."), MET)
    async with stage(tmp_path, model) as play:
        assert await play.play(define_outcome()) == Ended("completed")
        assert await verdicts(play) == [(1, "satisfied")]
        assert await play.play() is None
    told = str(model.requests[0].messages)
    assert "A table of rates" in told
    assert "Every rate has a source." in told


async def test_work_that_fails_the_rubric_is_sent_back_with_the_change_to_make(tmp_path: Path):
    model = Scripted(says("A table."), NOT_MET, says("With sources."), MET)
    async with stage(tmp_path, model) as play:
        assert await play.play(define_outcome()) == Ended("completed")
        assert await verdicts(play) == [(1, "needs_revision"), (2, "satisfied")]
        assert await play.continued() == ["outcome_revision"]
    assert "add a source to row 2" in str(model.requests[2].messages)


async def test_the_grader_sees_the_work_but_not_the_conversation(tmp_path: Path):
    model = Scripted(
        says("My secret thoughts.") + calls("echo", x="hidden way"),
        says("The table is in rates.csv."),
        calls("read", x="rates.csv"),
        MET,
    )
    look = echo("read", SAFE_READ)
    async with stage(tmp_path, model, echo(), look) as play:
        assert await play.play(define_outcome()) == Ended("completed")
        costs = [
            event.payload.purpose
            for event in await play.events()
            if isinstance(event.payload, ModelRequestEnded)
        ]
    grading = model.requests[2]
    assert [tool.name for tool in grading.tools] == ["read"], "only what reads"
    assert "The table is in rates.csv." in str(grading.messages)
    assert "secret thoughts" not in str(grading)
    assert "hidden way" not in str(grading)
    assert "echo rates.csv" in str(model.requests[3].messages), "it looked for itself"
    assert costs == [None, None, "grade", "grade"], "what grading costs is told apart"


@pytest.mark.parametrize("allowed", [1, 5])
async def test_work_is_graded_at_most_max_iterations_times(tmp_path: Path, allowed: int):
    model = Scripted(*[says("A table."), NOT_MET] * allowed)
    async with stage(tmp_path, model) as play:
        assert await play.play(define_outcome(max_iterations=allowed)) == Ended("completed")
        results = await verdicts(play)
    assert results == [
        *((number, "needs_revision") for number in range(1, allowed)),
        (allowed, "max_iterations_reached"),
    ]


def shell(*oks: bool, traits: Traits | None = None) -> tuple[Tool, list[str]]:
    results, ran = list(oks), list[str]()

    async def run(call: Call) -> ToolResult:
        ran.append(str(call.input["command"]))
        ok = results.pop(0)
        return ToolResult.text("all well" if ok else "2 tests failed", ok=ok)

    spec = ToolSpec(name="bash", description="Runs.", input_schema={"type": "object"})
    return Tool(spec=spec, run=run, traits=lambda _: traits or Traits()), ran


async def test_a_command_criterion_is_run_instead_of_judged(tmp_path: Path):
    tool, ran = shell(False, True)
    model = Scripted(says("Done."), says("Now it is."))
    async with stage(tmp_path, model, tool) as play:
        assert await play.play(define_outcome("- run: pytest -q\n")) == Ended("completed")
        assert await verdicts(play) == [(1, "needs_revision"), (2, "satisfied")]
    assert ran == ["pytest -q", "pytest -q"]
    assert "2 tests failed" in str(model.requests[1].messages)


async def test_a_command_criterion_that_needs_approval_is_not_run(tmp_path: Path):
    tool, ran = shell(True, traits=Traits(needs_person=True))
    async with stage(tmp_path, Scripted(says("Done.")), tool) as play:
        await play.play(define_outcome("1. run: rm -rf /\n", max_iterations=1))
        assert await verdicts(play) == [(1, "max_iterations_reached")]
    assert ran == []


@pytest.mark.parametrize(
    "said", ["satisfied!", '{"criteria": []}', '{"criteria": [{"criterion": "x"}]}', "{"]
)
async def test_an_unparsable_grading_fails_the_outcome(tmp_path: Path, said: str):
    model = Scripted(says("Done."), otherwise=says(said))
    async with stage(tmp_path, model) as play:
        assert await play.play(define_outcome()) == Ended("completed")
        assert await verdicts(play) == [(1, "failed")]
    assert len(model.requests) == 1 + 3, "it costs three requests at most"


async def test_a_grading_that_omits_criteria_is_requested_again(tmp_path: Path):
    both = (
        '{"criteria": [{"criterion": "a", "reason": "seen", "met": true},'
        ' {"criterion": "b", "reason": "seen", "met": true}]}'
    )
    model = Scripted(says("A table."), MET, says(both))
    async with stage(tmp_path, model) as play:
        await play.play(define_outcome("- Every rate has a source.\n- Every rate has a date.\n"))
        assert await verdicts(play) == [(1, "satisfied")]
    assert "for every criterion" in str(model.requests[2].messages)


def test_grading_cost_is_estimated_from_criteria_and_iterations():
    price = Price(
        input=Decimal(3), output=Decimal(15), cache_read=Decimal(0), cache_write=Decimal(0), date=""
    )
    facts = ModelFacts(id="x:y", window=1000, max_output=100, price=price)
    rubric = "- run: make test\n- One.\n* Two.\n3. Three.\n"
    estimate = estimate_grading(rubric, 4, facts)
    assert (estimate.judged, estimate.commands, estimate.iterations) == (3, 1, 4)
    assert estimate.cost_usd == estimate_grading("- One.", 1, facts).cost_usd * 12 > 0
    assert estimate_grading("- run: make test", 3, facts).cost_usd == 0
    assert estimate_grading("It is good.", 1, facts).judged == 1


async def test_a_grader_that_does_not_answer_fails_the_outcome(tmp_path: Path):
    model = Scripted(says("Done."), otherwise=fails("overloaded", "busy"))
    async with stage(tmp_path, model) as play:
        assert await play.play(define_outcome()) == Ended("completed")
        assert await verdicts(play) == [(1, "failed")]


async def test_an_interrupt_ends_the_grading(tmp_path: Path):
    waits = anyio.Event()

    class Slow(Scripted):
        async def stream(self, request):  # pyright: ignore  (a generator as that of its base)
            if len(self.requests) == 1:
                await play.send(UserInterrupt())
                await waits.wait()
            async for delta in super().stream(request):
                yield delta

    async with stage(tmp_path, Slow(says("Done."))) as play:
        with anyio.fail_after(60):
            ended = await play.end_of(define_outcome())
        assert ended.reason.startswith("interrupted")
        assert await verdicts(play) == [(1, "interrupted")]


async def test_a_grading_interrupted_by_a_crash_is_repeated_as_the_same_iteration(tmp_path: Path):
    class Dying(Scripted):
        async def stream(self, request):  # pyright: ignore  (as above)
            if len(self.requests) == 1:
                self.requests.append(request)
                raise SystemError("killed")
            async for delta in super().stream(request):
                yield delta

    model = Dying(says("Done."), MET)
    async with stage(tmp_path, model) as play:
        with pytest.raises(BaseException):  # noqa: B017, PT011 (as a kill leaves it)
            await play.play(define_outcome())
        assert await verdicts(play) == []
        assert await play.play() == Ended("completed")
        started = [
            event.payload.iteration
            for event in await play.events()
            if isinstance(event.payload, OutcomeEvaluationStarted)
        ]
        assert await verdicts(play) == [(1, "satisfied")]
    assert started == [1]


async def test_an_outcome_defined_during_a_run_is_picked_up(tmp_path: Path):
    model = Scripted(calls("nothing"), says("Now the table."), MET)
    async with stage(tmp_path, model) as play:
        later = UserDefineOutcome(description="More", rubric=FileRubric(file_id="file_1"))
        await play.play("go", later)
        assert "file_1" in str(model.requests[1].messages)
        assert await verdicts(play) == [(1, "satisfied")]
