"""An outcome that the user defines is work: the model is told of it, and how it is graded."""

from pathlib import Path

from tests.harness.session_setup import stage

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.events import FileRubric, TextRubric, UserDefineOutcome
from mainspring.harness.stop_reasons import Ended

DEFINED = UserDefineOutcome(
    description="A table of rates", rubric=TextRubric(content="Every rate has a source.")
)


async def test_a_defined_outcome_is_worked_towards(tmp_path: Path):
    model = Scripted(says("Here is the table."))
    async with stage(tmp_path, model) as play:
        assert await play.play(DEFINED) == Ended("completed")
        told = str(model.requests[0].messages)
        assert "A table of rates" in told
        assert "Every rate has a source." in told
        assert await play.play() is None


async def test_an_outcome_that_comes_during_a_run_is_heard(tmp_path: Path):
    model = Scripted(calls("nothing"), says("Now the table."))
    async with stage(tmp_path, model) as play:
        defined = UserDefineOutcome(description="More", rubric=FileRubric(file_id="file_1"))
        await play.play("go", defined)
        assert "file_1" in str(model.requests[-1].messages)
