"""What a session's threads are, as the runtime has them and as their log alone tells."""

from collections.abc import Sequence

import msgspec

from mainspring.core.envelope import Event
from mainspring.harness.state.thread_tree import ThreadNode, ThreadTree
from mainspring.runtime.session.session import Session


def told(member: ThreadNode) -> tuple[object, ...]:
    """All that is decided by."""
    thread = member.thread
    transcript = thread.transcript
    messages = (transcript.messages, transcript.upcoming(), transcript.spans)
    return (
        msgspec.json.encode(messages),
        thread.round,
        (thread.running, thread.interrupted, thread.redirected, thread.is_answered),
        (thread.turns, thread.messages, thread.last_reason, thread.retries),
        (thread.open_request, thread.open_reservation, thread.prefix, thread.status),
        (member.spend_account.spending, member.spend_account.usage),
        (member.created_event, member.depth, member.is_reported, member.worktree),
    )


def state(thread_tree: ThreadTree) -> dict[str, object]:
    return {
        thread_id: (told(member), thread_tree.messages_for(thread_id))
        for thread_id, member in thread_tree.nodes.items()
    }


async def check_live(session: Session) -> None:
    """What the runtime would go on with is what another process would read."""
    known = session._folded  # there is no other way to see it
    assert known is not None
    events = await session.events()
    assert state(known.thread_tree) == state(folded(events))


def folded(events: Sequence[Event]) -> ThreadTree:
    return ThreadTree.of(events, events[0].thread_id)
