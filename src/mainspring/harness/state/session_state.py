"""The working environment of a session as the log records it: policy, sandbox, workspace, loaded
tools, skills; and the model and effort that follow from them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from msgspec import Struct, field

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload
from mainspring.core.model import Effort
from mainspring.harness.permissions.tool_names import NETWORK_TOOLS, canonical_name

AGENT_IN_SESSION = "session_agent"
"""The `store_id` of a recalled message that an agent wrote in an earlier session."""
_MAX_CALLS = 30  # kept for the classifier, which reads as many
_CHANGES_FOLDER = re.compile(r"cd|pushd|popd|eval|source|(?:^|[\s;&|({])\.\s|\$'")
_ULTRATHINK_WORD = "ultrathink"
_ULTRATHINK = re.compile(rf"\b{_ULTRATHINK_WORD}\b", re.IGNORECASE)
_QUOTES = re.compile(r"(?<!\$)'|[\\\n\"]")
"""Quoting inside a word that is not part of the word."""

RELEVANT = frozenset[type](
    (
        events.AgentMcpToolUse,
        events.AgentToolResult,
        events.AgentToolUse,
        events.MemoryRecalled,
        events.PermissionUpdated,
        events.StatusIdle,
        events.UserMessage,
        events.AgentAdopted,
        events.PolicyAdopted,
        events.SandboxOpened,
        events.SessionForked,
        events.SessionImported,
        events.SessionReceived,
        events.SkillUsed,
        events.ToolCallAuthorized,
        events.ToolsLoaded,
        events.WorkspaceRestored,
        events.WorkspaceSnapshotted,
    )
)
"""Types of events that may change the state."""


class SessionState(Struct):
    policy: str | None = None
    """Hash of the blob with the rules and hooks that apply."""
    definition: str | None = None
    """Hash of the blob with the agent."""
    sandbox: events.SandboxOpened | None = None
    workspace: str | None = None
    """The workspace; after a move, the new one."""
    loaded_tools: tuple[str, ...] | None = None
    """Deferred tools whose definitions the model has; `None` until the log records which ones."""
    recalled: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """Store, path and version of memories that the model has read."""
    foreign_reads: list[str] = field(default_factory=list[str])
    """The first call of the session, in any thread, that requested text by others: web pages and
    output of MCP servers. A recalled message of an agent counts, too, since it may quote them."""
    snapshot: str | None = None
    """The newest snapshot of the workspace."""
    permissions: list[AnyPayload] = field(default_factory=list[AnyPayload])
    """Events that affect permissions: updates, decisions, forks and moves."""
    prompts: list[str] = field(default_factory=list[str])
    """User messages, for the classifier of the mode auto."""
    calls: deque[tuple[str, Mapping[str, object]]] = field(
        default_factory=lambda: deque(maxlen=_MAX_CALLS)
    )
    """The newest calls, done or proposed."""
    commands: list[str] = field(default_factory=list[str])
    """Commands that may have moved the shell to another folder, where it stays."""
    shell_was_used: bool = False
    """Whether a command was started in the shell: a new shell has lost its state."""
    skills: list[events.SkillUsed] = field(default_factory=list[events.SkillUsed])
    """Skills used in this run; their permissions end with it."""
    skill_texts: dict[str, str] = field(default_factory=dict[str, str])
    """Skill texts that the model has loaded, the newest last."""
    thinks_hard: bool = False
    """Whether a user or a skill wrote `ultrathink` in this run."""
    _loading_skills: dict[str, str] = field(default_factory=dict[str, str])
    """Skills by the call that loads them, while the call has no result."""

    @property
    def has_read_foreign_text(self) -> bool:
        """Whether any thread of the session has read text by others: threads exchange messages."""
        return bool(self.foreign_reads)

    def apply(self, payload: AnyPayload) -> None:
        match payload:
            case events.PolicyAdopted(policy=policy):
                self.policy = policy
            case events.AgentAdopted(definition=definition):
                self.definition = definition
            case events.SandboxOpened():
                self.sandbox, self.workspace = payload, payload.workspace
            case events.ToolsLoaded(names=names):
                self.loaded_tools = tuple(dict.fromkeys((*(self.loaded_tools or ()), *names)))
            case (
                events.WorkspaceSnapshotted(snapshot=snapshot)
                | events.WorkspaceRestored(snapshot=snapshot)
            ):
                self.snapshot = snapshot
            case events.PermissionUpdated() | events.ToolCallAuthorized():
                self.permissions.append(payload)
            case events.SessionForked() | events.SessionReceived():
                self._reset_for_transfer(payload)
            case _:
                self._apply_work(payload)

    def _reset_for_transfer(self, payload: events.SessionForked | events.SessionReceived) -> None:
        self.permissions.append(payload)
        self.skills = []  # their permissions belong to the parent session
        if isinstance(payload, events.SessionReceived):
            self.policy = self.definition = self.sandbox = self.snapshot = None
            self.workspace = payload.workspace
            self._forget()

    def _use_skill(self, used: events.SkillUsed) -> None:
        self.skills = [*self.skills, used]
        if used.tool_use_id is not None:
            self._loading_skills[used.tool_use_id] = used.name

    def _apply_work(self, payload: AnyPayload) -> None:
        match payload:
            case events.UserMessage(content=content):
                self.prompts.append(plain_text(content))
                self._check_ultrathink(self.prompts[-1])
            case events.AgentToolUse() | events.AgentMcpToolUse():
                self._add_call(payload)
            case events.MemoryRecalled():
                self._add_recalled(payload)
            case events.SessionImported():  # an imported file grants nothing
                self._forget()
            case events.SkillUsed():
                self._use_skill(payload)
            case events.StatusIdle(reason=reason) if reason != "requires_action":
                self.skills = []
                self.thinks_hard = False
            case events.AgentToolResult(tool_use_id=call_id) if call_id in self._loading_skills:
                self._add_skill_text(self._loading_skills.pop(call_id), payload)
            case _:
                pass

    def _forget(self) -> None:
        self.prompts.clear()
        self.calls.clear()
        self.commands.clear()

    def start(self, tool: str) -> None:
        """A call of this tool was started."""
        self.shell_was_used = self.shell_was_used or canonical_name(tool) == "bash"

    def _add_skill_text(self, name: str, result: events.AgentToolResult) -> None:
        if not result.is_error:
            self.skill_texts.pop(name, None)
            self.skill_texts[name] = plain_text(result.content)
            self._check_ultrathink(self.skill_texts[name])

    def _check_ultrathink(self, text: str) -> None:
        if not self.thinks_hard and _ULTRATHINK_WORD in text.lower():
            self.thinks_hard = _ULTRATHINK.search(text) is not None

    def _add_call(self, call: events.AgentToolUse | events.AgentMcpToolUse) -> None:
        self.calls.append((call.name, call.input))
        name = canonical_name(call.name)
        if isinstance(call, events.AgentMcpToolUse) or name in NETWORK_TOOLS:
            self.foreign_reads[:] = self.foreign_reads or [call.name]
        command = str(call.input.get("command", "")) if name == "bash" else ""
        is_moving = _CHANGES_FOLDER.search(command) or _CHANGES_FOLDER.search(
            _QUOTES.sub("", command)
        )
        if is_moving and command not in self.commands:
            self.commands.append(command)

    def _add_recalled(self, memory: events.MemoryRecalled) -> None:
        self.recalled.add((memory.store_id, memory.path, memory.version))
        if memory.store_id == AGENT_IN_SESSION:
            self.foreign_reads[:] = self.foreign_reads or [memory.store_id]


_EFFORT_LEVELS: tuple[Effort, ...] = ("none", "low", "medium", "high", "xhigh", "max")
_MIN_ULTRATHINK_EFFORT: Effort = "high"


def skill_model(state: SessionState) -> str | None:
    """The model that the newest skill in use names."""
    return next(
        (skill_used.model for skill_used in reversed(state.skills) if skill_used.model), None
    )


def effective_effort(state: SessionState, own: Effort) -> Effort:
    """The effort of the newest skill in use that names one, or else `own`. After `ultrathink`, one
    level more, and at least high."""
    efforts: list[Effort] = [
        skill_used.effort for skill_used in state.skills if skill_used.effort is not None
    ]
    effort = efforts[-1] if efforts else own
    if not state.thinks_hard:
        return effort
    above = min(_EFFORT_LEVELS.index(effort) + 1, len(_EFFORT_LEVELS) - 1)
    return _EFFORT_LEVELS[max(above, _EFFORT_LEVELS.index(_MIN_ULTRATHINK_EFFORT))]
