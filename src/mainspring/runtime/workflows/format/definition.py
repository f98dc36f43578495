"""A workflow as its file describes it: nodes, what each depends on, and what each may do. Only
values; `workflow_reader.py` reads them from YAML."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

NodeKind: TypeAlias = Literal[
    "command",
    "prompt",
    "bash",
    "script",
    "loop",
    "loop_group",
    "approval",
    "cancel",
    "include",
    "workflow",
]
TriggerRule: TypeAlias = Literal[
    "all_success", "one_success", "none_failed_min_one_success", "all_done"
]
KINDS: tuple[NodeKind, ...] = NodeKind.__args__
TRIGGER_RULES: tuple[TriggerRule, ...] = TriggerRule.__args__
HOOK_EVENTS = frozenset(
    (
        *("PreToolUse", "PostToolUse", "PostToolUseFailure", "Notification", "UserPromptSubmit"),
        *("SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop", "PreCompact"),
        *("PermissionRequest", "Setup", "TeammateIdle", "TaskCompleted", "Elicitation"),
        *("ElicitationResult", "ConfigChange", "WorktreeCreate", "WorktreeRemove"),
        "InstructionsLoaded",
    )
)
"""The events that `hooks` of a node may name."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")

AGENT_FIELDS = (
    *("provider", "model", "context", "output_format", "allowed_tools", "denied_tools", "hooks"),
    *("mcp", "skills", "agents", "pi", "effort", "thinking", "maxBudgetUsd", "systemPrompt"),
    *("fallbackModel", "settingSources", "betas", "sandbox", "persist_session"),
)
"""Fields that have an effect only on nodes with a model."""
NODE_KEYS = frozenset(
    (
        *("id", "description", "depends_on", "when", "trigger_rule", "idle_timeout", "retry"),
        *("always_run", "output_type", "input", "isolation", "fan_out", "with", "runtime"),
        *("deps", "timeout", "agent"),
        *KINDS,
        *AGENT_FIELDS,
    )
)
WORKFLOW_KEYS = frozenset(
    (
        *("name", "description", "provider", "model", "modelReasoningEffort", "webSearchMode"),
        *("interactive", "effort", "thinking", "fallbackModel", "betas", "sandbox", "worktree"),
        *("container", "evidence_policy", "mutates_checkout", "persist_sessions", "tags"),
        *("requires", "inputs", "returns", "outcome_field", "nodes"),
    )
)


class Retry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    max_attempts: int
    """How often it is tried again."""
    delay_ms: int = 3000
    """Before the first retry; it doubles for each further one."""
    on_error: Literal["transient", "all"] = "transient"


class Loop(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a loop or a group ends, and the body of a loop."""

    max_iterations: int
    prompt: str | None = None
    command: str | None = None
    until: str | None = None
    until_bash: str | None = None
    until_field: str | None = None
    fresh_context: bool = False
    interactive: bool = False
    gate_message: str | None = None
    signal_completes: bool = False
    nodes: tuple[Node, ...] = ()
    """The body of a group."""


class ApprovalChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    label: str | None = None


class Rework(Struct, frozen=True, kw_only=True, omit_defaults=True):
    prompt: str
    max_attempts: int = 3


class ApprovalSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    message: str
    decisions: tuple[ApprovalChoice, ...] = ()
    """Empty: approve or reject."""
    capture_response: bool = False
    on_reject: Rework | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """What a person may choose; empty: only whether to approve."""
        return tuple(item.id for item in self.decisions)


class FanOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    items: str
    name: str | None = None
    """The input that receives the item; without it, the item is the child's arguments."""
    max_parallel: int = 5
    join: Literal["all_done", "all_success"] = "all_done"


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: NodeKind
    line: int = 0
    text: str = ""
    """The prompt, program, reason or name that is the node's body."""
    description: str | None = None
    depends_on: tuple[str, ...] = ()
    when: str | None = None
    trigger_rule: TriggerRule = "all_success"
    retry: Retry | None = None
    loop: Loop | None = None
    approval: ApprovalSettings | None = None
    fan_out: FanOut | None = None
    bindings: dict[str, object] = {}
    """The values of `with`."""
    runtime: Literal["bun", "uv"] | None = None
    deps: tuple[str, ...] = ()
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    always_run: bool = False
    input: str | None = None
    isolation: Literal["inherit", "worktree"] = "inherit"
    context: str = "fresh"
    """`fresh`, `shared` (with the node before it) or `resume`."""
    resumes: str | None = None
    """The node whose conversation it continues."""
    agent: str | None = None
    """The subagent of the runner that works on it; `None`: the runner's agent."""
    output_format: dict[str, object] | None = None
    output_type: str | None = None
    model: str | None = None
    effort: str | None = None
    system_prompt: str | None = None
    max_budget_usd: float | None = None
    allowed_tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    agents: dict[str, dict[str, object]] = {}
    fallback_model: str | None = None
    mcp: str | None = None
    hooks: dict[str, object] = {}


class InputSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    required: bool = False
    default: object = None
    has_default: bool = False
    description: str | None = None


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str
    nodes: tuple[Node, ...]
    model: str | None = None
    effort: str | None = None
    fallback_model: str | None = None
    interactive: bool = False
    uses_worktree: bool | None = None
    requires_evidence: bool = False
    """It completes only if `evidence.json` is among its artifacts."""
    mutates_checkout: bool | None = None
    inputs: dict[str, InputSpec] = {}
    returns: str | None = None
    outcome_field: str | None = None
    tags: tuple[str, ...] = ()

    def node(self, node_id: str) -> Node | None:
        return next((node for node in self.nodes if node.id == node_id), None)


def input_variable(name: str) -> str:
    """The environment variable that carries an input."""
    return f"INPUTS_{name.replace('-', '_').upper()}"


def all_nodes(nodes: tuple[Node, ...]) -> list[Node]:
    """The nodes with those in the bodies of groups."""
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        if node.loop is not None:
            found += all_nodes(node.loop.nodes)
    return found
