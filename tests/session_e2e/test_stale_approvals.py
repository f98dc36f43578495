"""A person's yes is worth nothing once the rules have come to say no."""

import pytest
from tests.session_e2e.session_setup import Scene, read_results, rule

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.events import PermissionUpdate

DENIES = PermissionUpdate(type="addRules", behavior="deny", rules=(rule("Bash(touch *)"),))


@pytest.mark.parametrize(
    ("update", "gate", "name"),
    [
        (DENIES, "rule", "Bash(touch *)"),
        (PermissionUpdate(type="setMode", mode="plan"), "mode", "plan"),
    ],
)
async def test_a_call_denied_while_waiting_does_not_run_when_approved(
    scene: Scene, update: PermissionUpdate, gate: str, name: str
):
    async with scene.play(calls("bash", command="touch made.txt")) as play:
        waits = await play.run()
        await play.session.permit(update)
        assert (await play.allow(waits)).ok
        assert not (scene.workspace / "made.txt").exists()
        decisions = await play.decisions()
        assert (decisions[0][0], decisions[1:]) == ("ask", [("deny", gate, name)])
        [told] = read_results(play.model.requests[-1])
        assert told.startswith("Not allowed: ")


async def test_a_call_denied_after_its_approval_does_not_run(scene: Scene):
    async with scene.play(calls("bash", command="touch made.txt")) as play:
        [call_id] = (await play.run()).waiting_for
        await play.session.answer(call_id, "allow")
        await play.session.permit(DENIES)
        assert (await play.run()).ok
        assert not (scene.workspace / "made.txt").exists()


async def test_an_unrelated_deny_rule_does_not_void_an_approval(scene: Scene):
    async with scene.play(calls("bash", command="mkdir made")) as play:
        waits = await play.run()
        await play.session.permit(DENIES)
        assert (await play.allow(waits)).ok
        assert (scene.workspace / "made").is_dir()
        assert (await play.decisions())[-1][:2] == ("allow", "person")
