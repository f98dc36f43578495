"""What a session has been given to work with, as its log tells it: rules, sandbox, loaded tools."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainspring.core import events, facts
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload
from mainspring.harness.permissions.names import ours

_MOST = 30
_GOES = re.compile(r"cd|pushd|popd|eval|source|(?:^|[\s;&|({])\.\s|\$'")
_QUOTES = re.compile(r"(?<!\$)'|[\\\n\"]")
"""What may stand in the midst of a word and is no part of it."""


@dataclass(slots=True)
class Gear:
    policy: str | None = None
    """Hash of the blob with the rules and hooks that hold."""
    sandbox: facts.SandboxOpened | None = None
    loaded: tuple[str, ...] = ()
    """Deferred tools that the model has the definitions of."""
    snapshot: str | None = None
    """The newest one of the workspace."""
    permissions: list[AnyPayload] = field(default_factory=list[AnyPayload])
    """What bears on what may be done: updates, decisions, and that the session was forked."""
    prompts: list[str] = field(default_factory=list[str])
    """What the user said, for the classifier of the mode auto."""
    calls: deque[tuple[str, Mapping[str, object]]] = field(
        default_factory=lambda: deque(maxlen=_MOST)
    )
    """The newest ones: what the agent has done and wants to do."""
    commands: list[str] = field(default_factory=list[str])
    """Of the shell, which may have taken it to another folder; it stays where it went."""

    def apply(self, payload: AnyPayload) -> None:
        match payload:
            case facts.PolicyAdopted(policy=policy):
                self.policy = policy
            case facts.SandboxOpened():
                self.sandbox = payload
            case facts.ToolsLoaded(names=names):
                self.loaded += tuple(name for name in names if name not in self.loaded)
            case (
                facts.WorkspaceSnapshotted(snapshot=snapshot)
                | facts.WorkspaceRestored(snapshot=snapshot)
            ):
                self.snapshot = snapshot
            case events.PermissionUpdated() | facts.ToolCallAuthorized() | facts.SessionForked():
                self.permissions.append(payload)
            case events.UserMessage(content=content):
                self.prompts.append(plain_text(content))
            case (
                events.AgentToolUse(name=name, input=given)
                | events.AgentMcpToolUse(name=name, input=given)
            ):
                self._called(name, given)
            case _:
                pass

    def _called(self, name: str, given: Mapping[str, object]) -> None:
        self.calls.append((name, given))
        if ours(name) == "bash":
            self._heard(str(given.get("command", "")))

    def _heard(self, command: str) -> None:
        is_moving = _GOES.search(command) or _GOES.search(_QUOTES.sub("", command))
        if is_moving and command not in self.commands:
            self.commands.append(command)
