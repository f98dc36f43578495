"""What clients have sent, taken in between rounds; hooks see every message before the model."""

from __future__ import annotations

from contextlib import suppress

from mainspring.core import facts as fact
from mainspring.core.content import plain_text
from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdated, UserMessage
from mainspring.harness import occasions
from mainspring.harness.desk import Desk
from mainspring.harness.permissions.meaning import for_model
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.reasons import Ended


async def hear(desk: Desk) -> Ended | None:
    """Take in what has come during a run."""
    seen = desk.thread.messages
    ended = await listen(desk)
    if desk.thread.messages > seen and not desk.thread.interrupted:  # the interrupt comes first
        desk.note(fact.LoopContinued(reason="inbox_message"))
    return ended


async def listen(desk: Desk) -> Ended | None:
    """Take in what clients have sent; hooks see every message before the model does."""
    ended: Ended | None = None
    for event in await desk.listen():
        if isinstance(event.payload, PermissionUpdated):
            _tell_mode(desk, event.payload)
        if isinstance(event.payload, UserMessage):
            text = plain_text(event.payload.content)
            ruling = await desk.ask_hooks(occasions.prompt_submitted(text))
            if ruling.blocked:
                desk.note(fact.MessageWithheld(event_id=event.id, reason=ruling.reason))
                ended = Ended("hook_stopped", ruling.reason)
            elif ruling.stop is not None:
                ended = Ended("hook_stopped", ruling.stop)
            elif used := desk.skill_called(event.payload.skill):
                desk.note(used)
    return ended


def _tell_mode(desk: Desk, updated: PermissionUpdated) -> None:
    """The model is told of a mode when there is something to answer, and not before."""
    for update in updated.updates:
        if update.type == "setMode":
            with suppress(InvalidInput):  # a mode that is none changes nothing
                text = for_model(parse_mode(update.mode or ""))
                desk.note(fact.ContextAdded(text=text, source="mode"))
