"""What the log takes out of a call is not silently missing from what the call does."""

import pytest
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import ScriptStep, calls

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize(
    "step",
    [
        calls("write", file_path="made.txt", content=f"TOKEN={TOKEN}\n"),
        calls("bash", command=f"echo {TOKEN} > made.txt"),
    ],
)
async def test_a_call_whose_input_had_a_secret_redacted_is_refused(scene: Scene, step: ScriptStep):
    async with scene.play(step, mode="acceptEdits") as play:
        assert (await play.run()).reason == "completed"
        [told] = await play.results()
        assert told.startswith("Not done: [redacted:github_token] replaces what looks")
    assert not (scene.workspace / "made.txt").exists()
