"""The dependencies of a session's MCP servers: their definitions, facts from earlier sessions, and
the sandbox that their programs run in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from mainspring.core.events import KnownPayload
from mainspring.core.ports import AttachedProgram, ExecRequest


class ServerEntry(Protocol):
    """A server as a settings file describes it."""

    @property
    def name(self) -> str: ...
    @property
    def transport(self) -> Literal["stdio", "http", "sse", "ws"]: ...
    @property
    def command(self) -> str: ...
    @property
    def args(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def cwd(self) -> str | None: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def timeout_ms(self) -> float | None: ...
    @property
    def allows_sampling(self) -> bool: ...
    @property
    def networking(self) -> Mapping[str, object] | None: ...

    def check_inputs(self) -> None:
        """Raises: McpFailed: a value that a person must provide is missing."""
        ...


Entry = TypeVar("Entry", bound=ServerEntry)
Entry_contra = TypeVar("Entry_contra", bound=ServerEntry, contravariant=True)


class ServerFacts(Protocol[Entry_contra]):
    """Facts about servers from earlier sessions. Blocks."""

    def is_legacy(self, server: Entry_contra) -> bool: ...

    def remember_legacy(self, server: Entry_contra) -> None: ...

    def refused_tools(
        self, server: Entry_contra, texts: Mapping[str, str], hashes: Mapping[str, str]
    ) -> dict[str, str | None]:
        """Tools that are not used, with a reason if it should be reported. `texts`, `hashes`: of
        each tool's whole definition, by name."""
        ...

    def danger_in(self, text: str) -> str | None:
        """How a text tries to manipulate the model; `None` if it does not."""
        ...


class Redactor(Protocol):
    def learn(self, secrets: Mapping[str, str]) -> None: ...

    def redacted(self, text: str) -> str: ...


class ProgramHost(Protocol):
    """The sandbox of a session."""

    @property
    def workspace(self) -> Path: ...
    @property
    def network_facts(self) -> list[KnownPayload]: ...

    async def attach(
        self,
        name: str,
        request: ExecRequest,
        read_only: tuple[Path, ...] = (),
        networking: Mapping[str, object] | None = None,
    ) -> AttachedProgram:
        """Start a program in its own sandbox. `networking`: which of the session's hosts it
        may reach; `None`: all.

        Raises: SandboxFailed, InvalidInput: `networking` cannot be enforced.
        """
        ...
