"""Git worktrees of threads that do not share the workspace; each stays until it is closed.

The log and the disk are the truth; this module only caches the last lookup."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.events import KnownPayload, ThreadCreated, WorktreeClosed, WorktreeOpened
from mainspring.core.ports import ClosedWorktree, Worktree, Worktrees
from mainspring.harness.state.thread_tree import ThreadNode

_MAX_NAMED_PATHS = 20  # in an error


class ThreadWorktrees(Struct, kw_only=True):
    worktrees: Worktrees | None
    """`None` if worktrees are unavailable."""
    session_id: str
    note: Callable[[str, KnownPayload], None]
    """Records a fact of a thread."""
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Changed paths in the worktree, by thread."""

    async def open_for(
        self, created: ThreadCreated, *, is_within: bool
    ) -> tuple[WorktreeOpened, ...]:
        """Open the worktree of a thread that is being created, if it needs one; safe to repeat.
        `is_within`: whether its caller works in a worktree.

        Raises:
            ToolEnvironmentError: the worktree cannot be opened.
        """
        if created.isolation != "worktree":
            return ()
        if self.worktrees is None:
            raise ToolEnvironmentError(
                "Worktrees are unavailable here: call it with the isolation shared."
            )
        if is_within:
            raise ToolEnvironmentError(
                "You work in a worktree yourself, which cannot have worktrees: call it with the"
                " isolation shared, to work in yours."
            )
        worktree = await self.worktrees.open(_worktree_name(created, self.session_id))
        return (
            WorktreeOpened(path=str(worktree.path), branch=worktree.branch, commit=worktree.commit),
        )

    async def reopen(self, node: ThreadNode, *, is_within: bool) -> None:
        """Open a closed worktree again for a thread that continues.

        Raises: ToolEnvironmentError.
        """
        if node.worktree is None and node.created_event is not None:
            for event in await self.open_for(node.created_event, is_within=is_within):
                self.note(node.id, event)

    async def changed_paths(self, node: ThreadNode) -> tuple[str, ...]:
        """Paths in the workspace that would change if its worktree were merged.

        Raises: ToolEnvironmentError.
        """
        if self.worktrees is None or node.worktree is None:
            return ()
        self.changed[node.id] = tuple(await self.worktrees.changes(_worktree(node.worktree)))
        return self.changed[node.id]

    async def discard_if_unchanged(self, node: ThreadNode) -> None:
        """After a run, discard a worktree without changes."""
        try:
            if not await self.changed_paths(node):
                await self.close(node, merge=False)
        except ToolEnvironmentError:
            self.changed.pop(node.id, None)  # close_worktree reports the error

    async def close(self, node: ThreadNode, *, merge: bool) -> ClosedWorktree | None:
        """Merge the changes into the workspace, or discard them; `None` if it has no worktree.

        Raises: ToolEnvironmentError.
        """
        worktree, created = node.worktree, node.created_event
        if self.worktrees is None or worktree is None or created is None:
            return None
        message = created.description or f"Work of {created.agent_name}"
        closed = await self.worktrees.close(_worktree(worktree), merge=merge, message=message)
        self.note(
            node.id,
            WorktreeClosed(
                path=worktree.path,
                outcome=closed.outcome,
                commit=closed.commit,
                reason=closed.reason,
            ),
        )
        self.changed.pop(node.id, None)
        return closed

    def describe(self, node: ThreadNode) -> str:
        """The note about a thread's worktree that its parent reads."""
        if node.worktree is None:
            return ""
        changes = _change_summary(self.changed.get(node.id, ()))
        return f"[worktree {node.worktree.branch}{changes}. close_worktree merges or discards it.]"


def join_paths(paths: tuple[str, ...], limit: int = _MAX_NAMED_PATHS) -> str:
    omitted = len(paths) - limit
    return ", ".join((*paths[:limit], *([f"and {omitted} more"] if omitted > 0 else ())))


def with_worktree_note(prompt: str, worktrees_opened: Sequence[WorktreeOpened]) -> str:
    """The task with a note about the worktree: a fork would otherwise rely on the paths that it
    knows."""
    notes = [
        f"[From here on you work in {item.path}: a git worktree of your own, which started at the"
        f" last commit, {item.commit[:12]}. Leave your changes there, uncommitted: your"
        " caller merges them.]"
        for item in worktrees_opened
    ]
    return "\n\n".join((prompt, *notes))


def _change_summary(changed: tuple[str, ...]) -> str:
    if not changed:
        return ""
    files = "1 file" if len(changed) == 1 else f"{len(changed)} files"
    return f": {files} changed: {join_paths(changed)}"


def _worktree_name(created: ThreadCreated, session_id: str) -> str:
    """A name that is stable for a thread, and differs in a fork of the session, which has the same
    threads."""
    kind = re.sub(r"[^A-Za-z0-9]+", "-", created.agent_name or "").strip("-")[:40] or "agent"
    path = f"{session_id}/{created.session_thread_id}"
    return f"{kind}-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _worktree(opened: WorktreeOpened) -> Worktree:
    return Worktree(path=Path(opened.path), branch=opened.branch, commit=opened.commit)
