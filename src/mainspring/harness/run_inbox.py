"""The inbox during a run: client messages are read between tool rounds, hooks see them first, and
an interrupt stops the current work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.errors import InvalidInput
from mainspring.harness import hook_events
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.rule_descriptions import mode_notice
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.thread_context import ThreadContext


async def receive_during_run(context: ThreadContext, *, if_changed: bool = False) -> Ended | None:
    """Record messages that arrived during a run; with `if_changed`, only after a signal that there
    may be some."""
    count_before = context.thread.messages
    ended = await receive(context, if_changed=if_changed)
    if (
        context.thread.messages > count_before and not context.thread.interrupted
    ):  # the interrupt comes first
        context.note(events.LoopContinued(reason="inbox_message"))
    return ended


async def receive(context: ThreadContext, *, if_changed: bool = False) -> Ended | None:
    """Record messages of clients; hooks see every message before the model does."""
    ended: Ended | None = None
    for event in await context.receive_inbox(if_changed=if_changed):
        if isinstance(event.payload, events.PermissionUpdated):
            _note_mode(context, event.payload)
        if isinstance(event.payload, events.UserDefineOutcome):
            await _recall(context, event.payload.description)
        if isinstance(event.payload, events.UserMessage):
            text = plain_text(event.payload.content)
            hook_result = await context.run_hooks(hook_events.prompt_submitted(text))
            if hook_result.blocked:
                context.note(events.MessageWithheld(event_id=event.id, reason=hook_result.reason))
                ended = Ended("hook_stopped", hook_result.reason)
            elif hook_result.stop is not None:
                ended = Ended("hook_stopped", hook_result.stop)
            else:
                await _recall(context, text)
                await _note_message_context(context, text)
                if skill_used := context.skill_called(event.payload.skill):
                    context.note(skill_used)
    return ended


async def _recall(context: ThreadContext, text: str) -> None:
    if context.toolbox.recall is not None:
        context.note(*await context.toolbox.recall(text))


async def _note_message_context(context: ThreadContext, text: str) -> None:
    if (find := context.toolbox.message_context) is not None:
        texts = await find(text)
        context.note(*(events.ContextAdded(text=item, source="mcp") for item in texts))


def _note_mode(context: ThreadContext, updated: events.PermissionUpdated) -> None:
    """Tell the model about a mode change only when there is a message to answer."""
    for update in updated.updates:
        if update.type == "setMode":
            with suppress(InvalidInput):  # an invalid mode changes nothing
                text = mode_notice(parse_mode(update.mode or ""))
                context.note(events.ContextAdded(text=text, source="mode"))


async def until_interrupted(context: ThreadContext, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work`; True if the user interrupted it before it was done."""
    with anyio.CancelScope() as scope:
        context.stoppable_work = scope
        try:
            if context.interrupt_requested.is_set() or context.writer.is_interrupted(
                context.thread.id
            ):
                scope.cancel()
            await work()
        finally:
            context.stoppable_work = None
        return False
    return True
