"""What a session's tools work in: the protocols of a workspace, a sandbox that runs programs,
snapshots, worktrees, web fetches and schedules. `capabilities` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

StopCause: TypeAlias = Literal["time", "memory", "processes", "disk", "output", "cancelled", "lost"]
IsolationLevel: TypeAlias = Literal["isolated", "degraded", "none"]
FileChangeKind: TypeAlias = Literal["added", "modified", "removed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A program to run."""

    key: str
    """The idempotency key of the call: what ran under it is never run again."""
    argv: tuple[str, ...]
    cwd: str | None = None
    """Inside the workspace; its root, unless given."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    wall_seconds: float = 120.0
    max_bytes: int = 200_000
    """Kept of each stream, half from its beginning and half from its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedOutput:
    """A stream: all of it, or its beginning and its end."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    """Of the whole."""

    @property
    def left_out(self) -> int:
        return self.size - len(self.head) - len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    status: int
    """The exit status; 128 + n after signal n."""
    stdout: CapturedOutput
    stderr: CapturedOutput
    stop_cause: StopCause | None = None
    """What ended it, if it did not end by itself; `lost`: nobody knows how far it came."""
    milliseconds: int = 0


class SandboxInfo(Struct, frozen=True, kw_only=True):
    """What programs run in, for the log and for people."""

    backend: str
    flags_hash: str
    isolation_level: IsolationLevel

    @property
    def label(self) -> str:
        return f"{self.backend}/{self.isolation_level}/{self.flags_hash}"


def ignore_output(_: bytes) -> None:
    return None


class Sandbox(Protocol):
    """One session's. Whatever a program leaves running is killed when it ends."""

    @property
    def box(self) -> SandboxInfo: ...

    async def run(
        self, wanted: ExecRequest, hear: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        """Run a program, or collect what an earlier attempt under the same key has given.

        Cancelling it kills the program.

        Raises:
            SandboxFailed: it was not run.
        """
        ...

    async def find_result(self, key: str) -> ExecResult | None:
        """What became of a program after a crash; `None` if it was never started."""
        ...

    async def forget(self, key: str) -> None:
        """Its result is in the log; nobody will ask for it again."""
        ...


class AttachedProgram(Protocol):
    """A program in a sandbox whose input and output are ours. It ends when it is closed, or when
    the process that started it ends."""

    async def send(self, data: bytes) -> None:
        """
        Raises:
            OSError: it reads no more.
        """
        ...

    async def receive(self) -> bytes:
        """What it has written; empty once it writes no more."""
        ...

    async def error_output(self) -> str:
        """The end of what it wrote to its standard error output."""
        ...

    async def aclose(self) -> None: ...


class FileState(Struct, frozen=True, kw_only=True):
    """A file as it was read; `version` is another whenever its content or mode is."""

    content: bytes
    version: str
    mode: int
    changed_ns: int = 0
    """When it was changed last, by the clock of the file system; programs cannot set it back."""


class FileEntry(Struct, frozen=True, kw_only=True):
    path: PurePosixPath
    """Relative to the workspace; absolute in a root besides the first."""
    size: int
    modified_ns: int
    is_folder: bool
    is_link: bool = False


class Workspace(Protocol):
    """The files that a session may touch, and none besides. Paths may be absolute or relative;
    no symbolic link leads out, and no file that is hidden from it can be named.

    Everything here raises OutsideWorkspace for a path that is not in it, FileMissing for one that
    is not there, and FileRefused for one that is not a plain file, too large or not permitted.
    """

    @property
    def root(self) -> PurePosixPath: ...

    def locate(self, path: str) -> PurePosixPath:
        """The absolute path that is meant, links followed; nothing needs to be there.

        Raises:
            OutsideWorkspace: it is not in the workspace, or hidden from the session.
        """
        ...

    def named(self, path: str) -> str:
        """The absolute path as it was named, without aliases of the workspace; no link followed."""
        ...

    def open_file(self, path: str) -> int:
        """A descriptor to read a plain file with, the caller's to close. Blocks: for threads."""
        ...

    async def read(self, path: str, *, max_bytes: int) -> FileState: ...

    async def write(
        self, path: str, content: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileState:
        """Replace a file as a whole, atomically, making its folders. `expected` is the version
        that it must have (`""`: not there).

        Raises:
            FileChanged: it has another version.
        """
        ...

    async def walk(
        self,
        path: str = ".",
        *,
        limit: int = 100_000,
        depth: int | None = None,
        skip: Collection[str] = (),
    ) -> list[FileEntry]:
        """What is below a folder, sorted by path, no more than `limit` and no deeper than `depth`;
        links are not followed, and folders with a name in `skip` are not entered."""
        ...


class FileChange(Struct, frozen=True):
    path: str
    kind: FileChangeKind


class Snapshots(Protocol):
    """Earlier states of a workspace."""

    async def take(self) -> tuple[str, int]:
        """Keep the workspace as it is: the snapshot's id, and how many files it has."""
        ...

    async def restore(self, snapshot: str) -> list[FileChange]: ...

    async def diff(self, older: str, newer: str | None = None) -> list[FileChange]:
        """What has changed between two; `None`: the workspace as it is now."""
        ...


class Worktree(Struct, frozen=True, kw_only=True):
    path: Path
    branch: str
    commit: str
    """The commit that it started from."""


class ClosedWorktree(Struct, frozen=True, kw_only=True):
    """What became of a worktree."""

    outcome: Literal["merged", "discarded", "kept"]
    commit: str | None = None
    reason: str | None = None
    """Why it was kept, or what was merged, for people to read."""


class Worktrees(Protocol):
    async def open(self, name: str) -> Worktree:
        """Create a worktree, or return the existing one of that name.

        Raises:
            ToolEnvironmentError: the workspace is no repository, or git failed; it says why.
        """
        ...

    async def close(self, worktree: Worktree, *, merge: bool, message: str) -> ClosedWorktree:
        """Merge its changes into the workspace, or discard them. Safe to repeat.

        Raises: ToolEnvironmentError.
        """
        ...

    async def changes(self, worktree: Worktree) -> list[str]:
        """Paths that differ from its first commit.

        Raises: ToolEnvironmentError.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret that programs of a session may use without seeing it."""

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...]
    """Hosts that it may be sent to: names, or `*.` and a name."""


class FetchResponse(Struct, frozen=True, kw_only=True):
    """A page from the network."""

    url: str
    """Where it was found in the end."""
    status: int
    media_type: str
    content: bytes
    is_cut: bool = False


class Fetch(Protocol):
    async def __call__(self, url: str, *, max_bytes: int) -> FetchResponse:
        """Get a page from a host that the session may reach.

        Raises:
            NetworkRefused: it may not, or nothing answers; it says which and why.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPost:
    """A request of the service itself; its headers and body may be secret."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    status: int
    content_type: str
    body: bytes = field(repr=False)
    """As much of it as was read."""


class PostResult(Struct, frozen=True, kw_only=True):
    """The result of posting to a webhook."""

    status: int | None = None
    excerpt: str = ""
    error: str | None = None
    is_refused: bool = False
    """Nothing was sent: the address may not be reached."""

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class ScheduledPrompt(Struct, frozen=True, kw_only=True):
    id: str
    cron: str
    timezone: str
    prompt: str
    budget_usd: Decimal
    """Each session stops at it."""
    next_at: datetime | None = None


class Schedules(Protocol):
    """The scheduled prompts of one folder."""

    async def create(self, prompt: ScheduledPrompt, *, key: str) -> ScheduledPrompt:
        """`key`: what was created under it is not created again.

        Raises: InvalidInput: the expression or the time zone is wrong, or the folder has
        restrictions that scheduled sessions would lack.
        """
        ...

    async def list(self) -> list[ScheduledPrompt]: ...

    async def delete(self, schedule_id: str) -> None:
        """Raises: InvalidInput: there is none."""
        ...


class SearchHit(Struct, frozen=True, kw_only=True):
    url: str
    title: str
    text: str


class Search(Protocol):
    async def __call__(self, query: str, *, count: int) -> list[SearchHit]:
        """Raises: NetworkRefused."""
        ...
