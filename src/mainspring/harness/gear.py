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
_ULTRATHINK = re.compile(r"\bultrathink\b", re.IGNORECASE)
_QUOTES = re.compile(r"(?<!\$)'|[\\\n\"]")
"""What may stand in the midst of a word and is no part of it."""


@dataclass(slots=True)
class Gear:
    policy: str | None = None
    """Hash of the blob with the rules and hooks that hold."""
    definition: str | None = None
    """Hash of the blob with what the agent is."""
    sandbox: facts.SandboxOpened | None = None
    workspace: str | None = None
    """Where it works, or is to work since it was moved."""
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
    shell_was_used: bool = False
    """Whether a command was started in the shell: a new one has lost what that one did."""
    skills: list[facts.SkillUsed] = field(default_factory=list[facts.SkillUsed])
    """Used in this run: what they allow and forbid ends with it."""
    skill_texts: dict[str, str] = field(default_factory=dict[str, str])
    """What the model was given of skills that it has brought up, the newest last."""
    thinks_hard: bool = False
    """The word `ultrathink` was said in this run, by a user or by a skill."""
    _bringing: dict[str, str] = field(default_factory=dict[str, str])
    """Skills by the calls that bring them up, as long as these have no result."""

    def apply(self, payload: AnyPayload) -> None:
        match payload:
            case facts.PolicyAdopted(policy=policy):
                self.policy = policy
            case facts.AgentAdopted(definition=definition):
                self.definition = definition
            case facts.SandboxOpened():
                self.sandbox, self.workspace = payload, payload.workspace
            case facts.ToolsLoaded(names=names):
                self.loaded += tuple(name for name in names if name not in self.loaded)
            case (
                facts.WorkspaceSnapshotted(snapshot=snapshot)
                | facts.WorkspaceRestored(snapshot=snapshot)
            ):
                self.snapshot = snapshot
            case events.PermissionUpdated() | facts.ToolCallAuthorized():
                self.permissions.append(payload)
            case facts.SessionForked() | facts.SessionReceived():
                self._taken_over(payload)
            case _:
                self._worked(payload)

    def _taken_over(self, payload: facts.SessionForked | facts.SessionReceived) -> None:
        self.permissions.append(payload)
        self.skills = []  # what they allow was allowed to the other session
        if isinstance(payload, facts.SessionReceived):
            self.policy = self.definition = self.sandbox = self.snapshot = None
            self.workspace = payload.workspace
            self._forget()

    def _worked(self, payload: AnyPayload) -> None:
        match payload:
            case events.UserMessage(content=content):
                self.prompts.append(plain_text(content))
                self._consider(self.prompts[-1])
            case (
                events.AgentToolUse(name=name, input=given)
                | events.AgentMcpToolUse(name=name, input=given)
            ):
                self._called(name, given)
            case facts.SessionImported():  # what a file says is nobody's word for anything
                self._forget()
            case facts.SkillUsed(name=name, tool_use_id=call_id):
                self.skills = [*self.skills, payload]
                if call_id is not None:
                    self._bringing[call_id] = name
            case events.StatusIdle(reason=reason) if reason != "requires_action":
                self.skills = []
                self.thinks_hard = False
            case events.AgentToolResult(tool_use_id=call_id) if call_id in self._bringing:
                self._brought_up(self._bringing.pop(call_id), payload)
            case _:
                pass

    def _forget(self) -> None:
        self.prompts.clear()
        self.calls.clear()
        self.commands.clear()

    def start(self, tool: str) -> None:
        """A call of this tool was started."""
        self.shell_was_used = self.shell_was_used or ours(tool) == "bash"

    def _brought_up(self, name: str, result: events.AgentToolResult) -> None:
        if not result.is_error:
            self.skill_texts.pop(name, None)
            self.skill_texts[name] = plain_text(result.content)
            self._consider(self.skill_texts[name])

    def _consider(self, text: str) -> None:
        self.thinks_hard = self.thinks_hard or _ULTRATHINK.search(text) is not None

    def _called(self, name: str, given: Mapping[str, object]) -> None:
        self.calls.append((name, given))
        if ours(name) == "bash":
            self._heard(str(given.get("command", "")))

    def _heard(self, command: str) -> None:
        is_moving = _GOES.search(command) or _GOES.search(_QUOTES.sub("", command))
        if is_moving and command not in self.commands:
            self.commands.append(command)
