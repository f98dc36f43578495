"""What a file says about its nodes that is not an error: keys that nobody knows, fields that Archon
will drop, and fields that have no effect here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from mainspring.core.hook import HookEventName
from mainspring.runtime.workflows.format.definition import (
    AGENT_FIELDS,
    NODE_KEYS,
    WORKFLOW_KEYS,
    Node,
)

_LOOP_KEYS = frozenset(
    (
        *("prompt", "command", "until", "until_bash", "until_field", "max_iterations"),
        *("fresh_context", "interactive", "gate_message", "signal_completes"),
    )
)
_GROUP_KEYS = (_LOOP_KEYS - {"prompt", "command", "until_field"}) | {"nodes"}
_NESTED: Mapping[str, frozenset[str]] = {
    "approval": frozenset(("message", "decisions", "capture_response", "on_reject")),
    "retry": frozenset(("max_attempts", "delay_ms", "on_error")),
    "context": frozenset(("resume",)),
    "loop": _LOOP_KEYS,
    "loop_group": _GROUP_KEYS,
    "pi": frozenset(("enableExtensions", "interactive", "extensionFlags")),
    "fan_out": frozenset(("items", "as", "max_parallel", "join")),
}
_AGENT_KEYS = frozenset(
    ("description", "prompt", "model", "tools", "disallowedTools", "skills", "maxTurns")
)
_BINDING_KINDS = frozenset(("include", "workflow", "command", "script"))
_NO_EFFECT = {
    "pi": "settings of the Pi assistant",
    "betas": "beta headers of one provider",
    "settingSources": "settings of Claude Code",
    "thinking": "use effort",
    "provider": "the model names its provider",
    "always_run": "every run starts all nodes anew, and a resumed run repeats none",
    "persist_session": "each run starts its own conversations",
}
"""Fields that are accepted but change nothing here, and why."""
_INTERACTIVE_HINT = (
    " Nothing on this node gates. For a human gate, use an 'approval:' node; to gate each"
    " iteration of a loop, set BOTH 'loop.interactive: true' and 'loop.gate_message'"
    " ('gate_message' on its own does not gate). Workflow-level 'interactive:' is a"
    " different setting, and only on the web UI — it keeps the run in the foreground"
    " there; chat platforms already run in the foreground, so it does nothing for them."
)


@dataclass(slots=True)
class NodeProblems:
    """What is wrong with the nodes of a file, each with its line."""

    errors: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    warnings: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """As Archon words them."""
    notes: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Our own: fields that have no effect here."""


def note_keys(raw: Mapping[str, object], node: Node, title: str, problems: NodeProblems) -> None:
    """Add the warnings and notes about a node's keys."""
    found = [*_unknown_keys(raw, title), *_deprecations(raw, node)]
    if "with" in raw and node.kind not in _BINDING_KINDS:
        found.append(
            f"Node '{node.id}': 'with' is only supported on command, script, include, and"
            " workflow nodes — it is ignored here"
        )
    problems.warnings += [(node.line, text) for text in found]
    problems.notes += [(node.line, f"Node '{node.id}': {text}") for text in _ineffective(raw, node)]


def _unknown_keys(raw: Mapping[str, object], title: str) -> list[str]:
    found: list[str] = []
    for key, value in raw.items():
        if key not in NODE_KEYS:
            hint = _INTERACTIVE_HINT if key == "interactive" else ""
            if not hint and key in WORKFLOW_KEYS:
                hint = f" ('{key}' is valid at workflow level, not on individual nodes.)"
            found.append(f"{title}: unknown key '{key}' will be ignored.{hint}")
        elif key in _NESTED:
            found += unknown_nested(title, key, value, _NESTED[key])
        elif key == "agents" and isinstance(value, dict):
            for name, entry in cast("dict[str, object]", value).items():
                found += unknown_nested(title, f"agents.{name}", entry, _AGENT_KEYS)
    return found


def unknown_nested(title: str, path: str, value: object, known: frozenset[str]) -> list[str]:
    """Warnings about the unknown keys of an object, and of those in it."""
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, child in cast("dict[str, object]", value).items():
        if key not in known:
            found.append(f"{title}: unknown key '{path}.{key}' will be ignored.")
        elif path == "approval" and key == "on_reject":
            keys = frozenset(("prompt", "max_attempts"))
            found += unknown_nested(title, f"{path}.{key}", child, keys)
        elif path == "approval" and key == "decisions" and isinstance(child, list):
            for index, entry in enumerate(cast("list[object]", child)):
                name = f"{path}.{key}.{index}"
                found += unknown_nested(title, name, entry, frozenset(("id", "label")))
    return found


def _deprecations(raw: Mapping[str, object], node: Node) -> list[str]:
    found: list[str] = []
    fields = raw.get("approval")
    keys = cast("dict[str, object]", fields).keys() if isinstance(fields, dict) else set[str]()
    if node.approval is not None and node.approval.decisions and "capture_response" in keys:
        found.append(
            f"Node '{node.id}': 'approval.capture_response' is deprecated. Gate output is now"
            f" always structured as {{decision, text}} — read '${node.id}.output.text' downstream"
            " instead. This field is ignored."
        )
    if node.approval is not None and "on_reject" in keys:
        found.append(
            f"Node '{node.id}': 'approval.on_reject' is deprecated. Declare 'approval.decisions'"
            f' and wire a rework node with "when: \\"${node.id}.output.decision == \'reject\'\\""'
            " instead (loop it with loop_group if it should iterate). This gate keeps running"
            " via the legacy mechanism until migrated."
        )
    if node.loop is not None and node.loop.interactive:
        found.append(
            f"Node '{node.id}': node-level loop 'interactive:' is deprecated. A future release"
            " re-expresses the interactive loop as a gate + loop_group composition (#2707"
            " step 3). Continue using it for now."
        )
    return found


def _ineffective(raw: Mapping[str, object], node: Node) -> list[str]:
    has_rework = node.approval is not None and node.approval.on_reject is not None
    has_model = has_rework or node.kind in ("command", "prompt", "loop")
    found: list[str] = []
    for key in raw:
        is_used = has_model and (key != "context" or node.kind in ("command", "prompt"))
        is_used |= key == "output_format" and node.kind == "workflow"  # names its fields
        if key in _NO_EFFECT:
            found.append(f"'{key}' has no effect ({_NO_EFFECT[key]})")
        elif not is_used and key in (*AGENT_FIELDS, "agent", "idle_timeout"):
            found.append(f"'{key}' has no effect on a {node.kind} node")
    events = [name for name in node.hooks if name not in get_args(HookEventName)]
    return [*found, *(f"hooks of '{name}' never run, since it does not happen" for name in events)]
