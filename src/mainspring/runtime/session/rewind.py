"""Rewinding a session: which earlier states of its workspace are stored, and how to return to one.
The log only grows: undone events stay in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import FileChange, FileChangeKind, Snapshots
from mainspring.harness.state.thread import Thread
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of the workspace after an event."""

    seq: int
    time: datetime
    turn: int
    """The number of turns before it."""
    snapshot: str
    files: int | None
    """`None`: restored from an earlier checkpoint, which has the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindHistory:
    """The points of a session that it can be rewound to."""

    session_id: str
    head: int
    checkpoints: tuple[Checkpoint, ...]
    message_seqs: tuple[int, ...]
    """The events after which a user sent a message."""
    turn_seqs: tuple[int, ...]
    """The events after which the turns began."""
    workspace: str | None
    policy: str | None
    """The hash of the blob with its rules: files that they hide are in no snapshot."""

    def checkpoint_at(self, seq: int) -> Checkpoint | None:
        """The state of the workspace after an event; `None` if there is no snapshot. The first
        snapshot was taken before any change, so it also applies to earlier events."""
        before = [checkpoint for checkpoint in self.checkpoints if checkpoint.seq <= seq]
        return before[-1] if before else next(iter(self.checkpoints), None)

    def target(self, *, to: int | None, turns: int | None) -> int:
        """The event to rewind to; by default the one before the last message.

        Raises:
            InvalidInput: the session does not go back that far.
        """
        if to is not None:
            if not 1 <= to <= self.head:
                raise InvalidInput(
                    f"session {self.session_id} has events 1 to {self.head}, not {to}"
                )
            return to
        points = self.message_seqs if turns is None else self.turn_seqs
        if len(points) < (turns or 1):
            history = "asked for nothing" if turns is None else f"had {len(points)} turns"
            raise InvalidInput(
                f"session {self.session_id} has {history}: it cannot be rewound further"
            )
        return points[-(turns or 1)]


async def read_rewind_history(log: SessionLog, session: SessionRow) -> RewindHistory:
    """Includes the events that a fork has inherited."""
    thread = Thread(id=session.thread_id)
    checkpoints: list[Checkpoint] = []
    messages: list[int] = []
    turns: list[int] = []
    turn_start = 0
    for event in await log.read(session.id, threads=[session.thread_id]):
        turns_before = thread.turns
        thread.apply(event)
        match event.payload:
            case events.WorkspaceSnapshotted(snapshot=snapshot, files=files):
                checkpoints.append(_checkpoint(event, thread, snapshot, files))
            case events.WorkspaceRestored(snapshot=snapshot):
                checkpoints.append(_checkpoint(event, thread, snapshot, None))
            case events.UserMessage():
                messages.append(event.seq - 1)
            case events.ModelRequestStarted(purpose=None):
                turn_start = event.seq - 1
            case _:
                pass
        if thread.turns > turns_before:
            turns.append(turn_start)
    state = thread.session_state
    return RewindHistory(
        session_id=session.id,
        head=session.head.seq,
        checkpoints=tuple(checkpoints),
        message_seqs=tuple(messages),
        turn_seqs=tuple(turns),
        workspace=None if state.sandbox is None else state.sandbox.workspace,
        policy=state.policy,
    )


def _checkpoint(event: Event, thread: Thread, snapshot: str, files: int | None) -> Checkpoint:
    return Checkpoint(
        seq=event.seq, time=event.time, turn=thread.turns, snapshot=snapshot, files=files
    )


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint and the snapshots to restore it from."""

    checkpoint: Checkpoint
    snapshots: Snapshots


async def preview_restore(
    log: SessionLog, history: RewindHistory, point: RestorePoint | None
) -> list[FileChange]:
    """The changes that a restore would make to the current workspace; none without a restore point.

    Raises:
        LeaseHeld: the session is running, so the workspace may change.
    """
    reverse: dict[FileChangeKind, FileChangeKind] = {
        "added": "removed",
        "removed": "added",
        "modified": "modified",
    }
    async with hold_session(log, history.session_id):
        changes = [] if point is None else await point.snapshots.diff(point.checkpoint.snapshot)
    return [FileChange(item.path, reverse[item.kind]) for item in changes]


@dataclass(frozen=True, slots=True)
class RestoreResult:
    undo_seq: int
    """The event to rewind to in order to undo this."""
    changes: tuple[FileChange, ...]


async def restore(log: SessionLog, history: RewindHistory, point: RestorePoint) -> RestoreResult:
    """Take a snapshot of the current workspace, then restore the earlier one.

    Raises:
        LeaseHeld: the session is running.
        InvalidInput: it has run since its history was read; nothing was done.
    """
    snapshot, snapshots = point.checkpoint.snapshot, point.snapshots
    async with hold_session(log, history.session_id) as writer:
        if writer.head.seq != history.head:
            raise InvalidInput(f"session {history.session_id} has continued meanwhile: check again")
        present, files = await snapshots.take()
        last = history.checkpoint_at(history.head)
        if last is None or last.snapshot != present:
            # logged before any file changes, so that it is known after a crash
            await writer.append(events.WorkspaceSnapshotted(snapshot=present, files=files))
        undo_seq = writer.head.seq
        changed = await snapshots.restore(snapshot)
        if changed:
            await writer.append(events.WorkspaceRestored(snapshot=snapshot, files=len(changed)))
    return RestoreResult(undo_seq, tuple(changed))
