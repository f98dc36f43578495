"""The JSON Schema of a workflow file, for editors: which keys there are, and what they take."""

from __future__ import annotations

from mainspring.runtime.workflows.format.definition import (
    EFFORTS,
    KINDS,
    NODE_KEYS,
    TRIGGER_RULES,
    WORKFLOW_KEYS,
)

_TEXT: dict[str, object] = {"type": "string"}
_TEXTS: dict[str, object] = {"type": "array", "items": _TEXT}
_OBJECT: dict[str, object] = {"type": "object"}
_TRUTH: dict[str, object] = {"type": "boolean"}
_MILLISECONDS: dict[str, object] = {"type": "number", "exclusiveMinimum": 0}


def _whole(low: int, high: int | None = None) -> dict[str, object]:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def _one_of(names: tuple[str, ...]) -> dict[str, object]:
    return {"type": "string", "enum": list(names)}


def _fields(needed: tuple[str, ...] = (), /, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(needed)}


_END: dict[str, object] = {
    "max_iterations": _whole(1),
    "until": _TEXT,
    "until_bash": _TEXT,
    "fresh_context": _TRUTH,
    "interactive": _TRUTH,
    "gate_message": _TEXT,
    "signal_completes": _TRUTH,
}
_NODE: dict[str, object] = {
    "depends_on": _TEXTS,
    "trigger_rule": _one_of(TRIGGER_RULES),
    "retry": _fields(
        ("max_attempts",),
        max_attempts=_whole(1, 5),
        delay_ms={"type": "number", "minimum": 1000, "maximum": 60_000},
        on_error=_one_of(("transient", "all")),
    ),
    "context": {"anyOf": [_one_of(("fresh", "shared")), _fields(("resume",), resume=_TEXT)]},
    "effort": _one_of(EFFORTS),
    "runtime": _one_of(("bun", "uv")),
    "isolation": _one_of(("inherit", "worktree")),
    "loop": _fields(("max_iterations",), prompt=_TEXT, command=_TEXT, until_field=_TEXT, **_END),
    "loop_group": _fields(
        ("max_iterations", "nodes"),
        nodes={"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}},
        **_END,
    ),
    "approval": _fields(
        ("message",),
        message=_TEXT,
        decisions={"type": "array", "items": _fields(("id",), id=_TEXT, label=_TEXT)},
        capture_response=_TRUTH,
        on_reject=_fields(("prompt",), prompt=_TEXT, max_attempts=_whole(1, 10)),
    ),
    "fan_out": _fields(
        ("items",),
        **{"items": _TEXT, "as": _TEXT, "max_parallel": _whole(1)},
        join=_one_of(("all_done", "all_success")),
    ),
    "with": _OBJECT,
    "output_format": _OBJECT,
    "hooks": _OBJECT,
    "agents": {"type": "object", "additionalProperties": _OBJECT},
    "allowed_tools": _TEXTS,
    "denied_tools": _TEXTS,
    "skills": _TEXTS,
    "deps": _TEXTS,
    "betas": _TEXTS,
    "settingSources": _TEXTS,
    "maxBudgetUsd": _MILLISECONDS,
    "timeout": _MILLISECONDS,
    "idle_timeout": _MILLISECONDS,
    "always_run": _TRUTH,
    "persist_session": _TRUTH,
    "pi": _OBJECT,
    "sandbox": _OBJECT,
    "thinking": {},
}
_WORKFLOW: dict[str, object] = {
    "effort": _one_of(EFFORTS),
    "interactive": _TRUTH,
    "mutates_checkout": _TRUTH,
    "persist_sessions": _TRUTH,
    "worktree": _fields(enabled=_TRUTH),
    "container": _OBJECT,
    "sandbox": _OBJECT,
    "evidence_policy": _fields(("required",), required=_TRUTH),
    "tags": _TEXTS,
    "betas": _TEXTS,
    "requires": {"type": "array"},
    "thinking": {},
    "inputs": {
        "type": "object",
        "additionalProperties": _fields(required=_TRUTH, default={}, description=_TEXT),
    },
    "nodes": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}},
}


def workflow_schema() -> dict[str, object]:
    node = {key: _NODE.get(key, _TEXT) for key in sorted(NODE_KEYS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workflow",
        "type": "object",
        "required": ["name", "description", "nodes"],
        "properties": {key: _WORKFLOW.get(key, _TEXT) for key in sorted(WORKFLOW_KEYS)},
        "$defs": {
            "node": {
                "type": "object",
                "required": ["id"],
                "properties": node,
                "oneOf": [{"required": [kind]} for kind in KINDS],
            }
        },
    }
