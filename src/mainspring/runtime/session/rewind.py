"""Rewinding a session: which earlier states of its workspace are stored, and how to return to
one. The log only grows; what is undone stays in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import FileChange, Snapshots
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
    """Hash of the blob with the rules that hold: what they hide is in no snapshot."""

    def checkpoint_at(self, seq: int) -> Checkpoint | None:
        """How the workspace was after an event; `None` if nobody has kept it.

        The first one was taken before anything was changed, so that it is also what came before.
        """
        before = [checkpoint for checkpoint in self.checkpoints if checkpoint.seq <= seq]
        return before[-1] if before else next(iter(self.checkpoints), None)

    def target(self, *, to: int | None, turns: int | None) -> int:
        """The event to go back to; before the last thing that was asked, unless something is said.

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
            what = "asked for nothing" if turns is None else f"had {len(points)} turns"
            raise InvalidInput(
                f"session {self.session_id} has {what}: it cannot be rewound further"
            )
        return points[-(turns or 1)]


async def read_rewind_history(log: SessionLog, session: SessionRow) -> RewindHistory:
    """Of a fork, what it has inherited too."""
    thread = Thread(id=session.thread_id)
    kept: list[Checkpoint] = []
    asked: list[int] = []
    turns: list[int] = []
    begun = 0
    for event in await log.read(session.id, threads=[session.thread_id]):
        known = thread.turns
        thread.apply(event)
        match event.payload:
            case events.WorkspaceSnapshotted(snapshot=snapshot, files=files):
                kept.append(_checkpoint(event, thread, snapshot, files))
            case events.WorkspaceRestored(snapshot=snapshot):
                kept.append(_checkpoint(event, thread, snapshot, None))
            case events.UserMessage():
                asked.append(event.seq - 1)
            case events.ModelRequestStarted(purpose=None):
                begun = event.seq - 1
            case _:
                pass
        if thread.turns > known:
            turns.append(begun)
    state = thread.session_state
    return RewindHistory(
        session_id=session.id,
        head=session.head.seq,
        checkpoints=tuple(kept),
        message_seqs=tuple(asked),
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
    """What going back would do to the workspace as it is; nothing, where there is no way.

    Raises:
        LeaseHeld: the session runs, so that nothing will stay as it is.
    """
    async with hold_session(log, history.session_id):
        since = [] if point is None else await point.snapshots.diff(point.checkpoint.snapshot)
    return [_reverse_change(item) for item in since]


def _reverse_change(change: FileChange) -> FileChange:
    match change.kind:
        case "added":
            return FileChange(change.path, "removed")
        case "removed":
            return FileChange(change.path, "added")
        case "modified":
            return change


@dataclass(frozen=True, slots=True)
class RestoreResult:
    left: int
    """The event to rewind to in order to undo this."""
    file_change: tuple[FileChange, ...]


async def restore(log: SessionLog, history: RewindHistory, point: RestorePoint) -> RestoreResult:
    """Keep the workspace as it is, then make it what it was.

    Raises:
        LeaseHeld: the session runs.
        InvalidInput: it has run since its past was read; nothing was done.
    """
    snapshot, snapshots = point.checkpoint.snapshot, point.snapshots
    async with hold_session(log, history.session_id) as writer:
        if writer.head.seq != history.head:
            raise InvalidInput(f"session {history.session_id} has continued meanwhile: check again")
        present, files = await snapshots.take()
        last = history.checkpoint_at(history.head)
        if last is None or last.snapshot != present:
            # in the log before any file changes, so that it can be found after a crash
            await writer.append(events.WorkspaceSnapshotted(snapshot=present, files=files))
        left = writer.head.seq
        changed = await snapshots.restore(snapshot)
        if changed:
            await writer.append(events.WorkspaceRestored(snapshot=snapshot, files=len(changed)))
    return RestoreResult(left, tuple(changed))
