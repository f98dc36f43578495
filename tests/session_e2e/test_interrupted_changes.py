"""A process dies between a change of a file and the result in the log; the next one edits on."""

from collections.abc import Mapping

import pytest
from tests.session_e2e.session_setup import Play, Scene, leave

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.events import (
    AgentToolUse,
    ModelRequestEnded,
    ModelRequestStarted,
    StatusRunning,
    ToolCallAuthorized,
    ToolCallStarted,
    Usage,
)
from mainspring.log.session_lease import hold_session

INTERRUPTED: dict[str, Mapping[str, object]] = {
    "write": {"file_path": "f.txt", "content": "one\ntwo\n"},
    "edit": {"file_path": "f.txt", "old_string": "zero\n", "new_string": "one\n"},
}


async def begin_change(play: Play, name: str) -> None:
    """The log of a process that has started a change and died before its result."""
    async with hold_session(play.session.log, play.session.id) as writer:
        await writer.append(StatusRunning())
        [started] = await writer.append(ModelRequestStarted(model="m"))
        [call] = await writer.append(AgentToolUse(name=name, input=dict(INTERRUPTED[name])))
        await writer.append(
            ModelRequestEnded(model_request_start_id=started.id, model_usage=Usage()),
            ToolCallAuthorized(tool_use_id=call.id, decision="allow", gate="rule"),
            ToolCallStarted(tool_use_id=call.id, idempotency_key="k"),
        )


@pytest.mark.parametrize("name", sorted(INTERRUPTED))
async def test_a_file_whose_change_was_interrupted_can_be_edited_without_reading_it_again(
    scene: Scene, name: str
):
    async with scene.play() as play:
        await play.session.permit(leave("edit"), leave("write"))
        await play.run()
        await begin_change(play, name)
    scene.write("f.txt", "one\ntwo\n")  # the change has had its effect
    edit = calls("edit", file_path="f.txt", old_string="two", new_string="three")
    async with scene.play(edit, go_on=play.session.id) as again:
        await again.run()
        interrupted, edited = await again.results()
    assert interrupted in ("f.txt was written.", "f.txt was changed.")
    assert edited.startswith("Changed f.txt"), edited
    assert scene.read("f.txt") == "one\nthree\n"
