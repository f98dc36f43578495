"""What a session's tools work in: the protocols of a workspace, a sandbox that runs programs,
snapshots, worktrees, web fetches and schedules. `capabilities` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

StopCause: TypeAlias = Literal["time", "memory", "processes", "disk", "output", "cancelled", "lost"]
IsolationLevel: TypeAlias = Literal["isolated", "degraded", "container", "none"]
"""`container`: only the container around everything isolates programs, as its operator declared."""
ISOLATED: frozenset[IsolationLevel] = frozenset(("isolated", "container"))
"""The levels at which commands need no other protection than the sandbox."""
FileChangeKind: TypeAlias = Literal["added", "modified", "removed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A program to run."""

    key: str
    """The idempotency key of the call: a program runs at most once per key."""
    argv: tuple[str, ...]
    cwd: str | None = None
    """A folder of the workspace; its root by default."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    wall_seconds: float = 120.0
    max_bytes: int = 200_000
    """How many bytes of each stream to return: half from its beginning, half from its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedOutput:
    """The output of a stream: all of it, or its beginning and end."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    """The size of the whole stream."""

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
    """Why it was stopped, if it did not exit by itself; `lost`: its progress is unknown."""
    milliseconds: int = 0


class SandboxInfo(Struct, frozen=True, kw_only=True):
    """A description of the sandbox, for the log and the user."""

    backend: str
    flags_hash: str
    isolation_level: IsolationLevel

    @property
    def label(self) -> str:
        return f"{self.backend}/{self.isolation_level}/{self.flags_hash}"


def ignore_output(_: bytes) -> None:
    return None


class Sandbox(Protocol):
    """The sandbox of one session. Processes that a program leaves running are killed."""

    @property
    def box(self) -> SandboxInfo: ...

    async def run(
        self, request: ExecRequest, on_output: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        """Run a program, or return the result of an earlier attempt with the same key.

        Cancelling it kills the program.

        Raises:
            SandboxFailed: it was not run.
        """
        ...

    async def find_result(self, key: str) -> ExecResult | None:
        """The result of a program after a crash; `None` if it was never started."""
        ...

    async def forget(self, key: str) -> None:
        """Delete a result that is in the log and no longer needed here."""
        ...


class AttachedProgram(Protocol):
    """A program in a sandbox, connected by pipes. It ends when it is closed, or with the process
    that started it."""

    async def send(self, data: bytes) -> None:
        """
        Raises:
            OSError: the program has closed its input.
        """
        ...

    async def receive(self) -> bytes:
        """New output; empty at its end."""
        ...

    async def error_output(self) -> str:
        """The end of its standard error output."""
        ...

    async def aclose(self) -> None: ...


class FileState(Struct, frozen=True, kw_only=True):
    """A file as read; `version` differs whenever its content or mode does."""

    content: bytes
    version: str
    mode: int
    changed_ns: int = 0
    """The time of the last change (ctime), which programs cannot set."""


class FileEntry(Struct, frozen=True, kw_only=True):
    path: PurePosixPath
    """Relative to the workspace; absolute in a root besides the first."""
    size: int
    modified_ns: int
    is_folder: bool
    is_link: bool = False


class Workspace(Protocol):
    """The only files that a session may access. Paths may be absolute or relative; symbolic links
    cannot lead out, and hidden files cannot be accessed.

    All methods raise OutsideWorkspace for a path outside it, FileMissing for one that does not
    exist, and FileRefused for one that is not a regular file, too large or not permitted.
    """

    @property
    def root(self) -> PurePosixPath: ...

    def locate(self, path: str) -> PurePosixPath:
        """The absolute path with links resolved; the file need not exist.

        Raises:
            OutsideWorkspace: it is not in the workspace, or hidden from the session.
        """
        ...

    def named(self, path: str) -> str:
        """The absolute path without aliases of the workspace; links are not resolved."""
        ...

    def open_file(self, path: str) -> int:
        """A descriptor for reading a regular file, which the caller must close. It blocks."""
        ...

    async def read(self, path: str, *, max_bytes: int) -> FileState: ...

    async def write(
        self, path: str, content: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileState:
        """Replace a whole file atomically, creating its folders. `expected` is the version that it
        must have (`""`: it must not exist).

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
        """The entries below a folder, sorted by path, at most `limit` and at most `depth` levels.
        Links are not followed, and folders named in `skip` are not entered."""
        ...


class FileChange(Struct, frozen=True):
    path: str
    kind: FileChangeKind


class Snapshots(Protocol):
    """Earlier states of a workspace."""

    async def take(self) -> tuple[str, int]:
        """Take a snapshot; returns its id and the number of files."""
        ...

    async def restore(self, snapshot: str) -> list[FileChange]: ...

    async def diff(self, older: str, newer: str | None = None) -> list[FileChange]:
        """The changes between two snapshots; `None` is the current workspace."""
        ...

    async def contents(self, snapshot: str | None, paths: Sequence[str]) -> dict[str, bytes]:
        """Files of a snapshot; `None` is the current workspace. Leaves out large files and paths
        that are not files."""
        ...


class Worktree(Struct, frozen=True, kw_only=True):
    path: Path
    branch: str
    commit: str
    """The commit that it started from."""


class ClosedWorktree(Struct, frozen=True, kw_only=True):
    """The result of closing a worktree."""

    outcome: Literal["merged", "discarded", "kept"]
    commit: str | None = None
    reason: str | None = None
    """Why it was kept, or what was merged, for the user."""


class Worktrees(Protocol):
    async def open(self, name: str) -> Worktree:
        """Create a worktree, or return the existing one of that name.

        Raises:
            ToolEnvironmentError: the workspace is not a repository, or git failed; it says why.
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
    """The final URL after redirects."""
    status: int
    media_type: str
    content: bytes
    is_cut: bool = False


class Fetch(Protocol):
    async def __call__(self, url: str, *, max_bytes: int) -> FetchResponse:
        """Get a page from a host that the session may reach.

        Raises:
            NetworkRefused: the host is not allowed, or does not answer; it says which and why.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPost:
    """A request by the service itself; its headers and body may be secret."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    status: int
    content_type: str
    body: bytes = field(repr=False)
    """The part of the body that was read."""


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
    """The limit for each session."""
    next_at: datetime | None = None


class Schedules(Protocol):
    """The scheduled prompts of one folder."""

    async def create(self, prompt: ScheduledPrompt, *, key: str) -> ScheduledPrompt:
        """`key` makes creation idempotent.

        Raises: InvalidInput: the expression or the time zone is wrong, or the folder has
        restrictions that scheduled sessions would lack.
        """
        ...

    async def list(self) -> list[ScheduledPrompt]: ...

    async def delete(self, schedule_id: str) -> None:
        """Raises: InvalidInput: there is no such schedule."""
        ...


class SearchHit(Struct, frozen=True, kw_only=True):
    url: str
    title: str
    text: str


class Search(Protocol):
    async def __call__(self, query: str, *, count: int) -> list[SearchHit]:
        """Raises: NetworkRefused."""
        ...


class Seal(Protocol):
    def seal(self, plain: bytes, context: str) -> bytes:
        """Encrypt a secret. `context` names its owner; unsealing needs the same context."""
        ...

    def unseal(self, sealed: bytes, context: str) -> bytes:
        """Raises: StoreCorrupt: another key or context, or the sealed bytes were changed."""
        ...
