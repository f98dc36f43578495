"""What a session has been given to work with, as its log tells it: rules, sandbox, loaded tools."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainspring.core import events, facts
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload


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

    def apply(self, payload: AnyPayload) -> None:
        match payload:
            case facts.PolicyAdopted(policy=policy):
                self.policy = policy
            case facts.SandboxOpened():
                self.sandbox = payload
            case facts.ToolsLoaded(names=names):
                self.loaded += tuple(name for name in names if name not in self.loaded)
            case facts.WorkspaceSnapshotted(snapshot=snapshot):
                self.snapshot = snapshot
            case facts.WorkspaceRestored(snapshot=snapshot):
                self.snapshot = snapshot
            case events.PermissionUpdated() | facts.ToolCallAuthorized() | facts.SessionForked():
                self.permissions.append(payload)
            case events.UserMessage(content=content):
                self.prompts.append(plain_text(content))
            case _:
                pass
