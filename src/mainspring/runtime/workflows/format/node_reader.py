"""Reads one node of a workflow from its YAML values, with every problem in Archon's terms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from mainspring.runtime.workflows.format.definition import (
    EFFORTS,
    HOOK_EVENTS,
    KINDS,
    TRIGGER_RULES,
    ApprovalChoice,
    ApprovalSettings,
    FanOut,
    Loop,
    Node,
    NodeKind,
    Retry,
    Rework,
    input_variable,
)
from mainspring.runtime.workflows.format.node_warnings import NodeProblems, note_keys
from mainspring.runtime.workflows.format.references import NAME, whole_reference

Choice = TypeVar("Choice", bound=str)
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_INPUT_NAME = re.compile(NAME)
_TEXTS = ("command", "prompt", "bash", "script", "cancel", "include", "workflow")
_BINDING_KINDS = frozenset(("include", "workflow", "command", "script"))
MAX_RETRIES = 5  # Archon's own limit
_RETRY_MS = (1000, 60_000)  # Archon's own limits
_MAX_REWORKS = 10  # Archon's own limit
_NOT_FOR_KIND: Mapping[str, tuple[str, ...]] = {
    "include": ("isolation", "fan_out", "input", "mutates_checkout"),
    "workflow": (),
}


@dataclass(slots=True)
class NodeReader:
    raw: Mapping[str, object]
    index: int
    line: int
    problems: NodeProblems
    lines: Mapping[int, int]
    """The lines of nodes in bodies of groups, by the identity of their values."""
    label: str = ""

    @property
    def id(self) -> str:
        return str(self.raw.get("id") or "").strip() or f"#{self.index + 1}"

    def read(self) -> Node | None:
        """The node; `None` if something in it is wrong."""
        before = len(self.problems.errors)
        node = self._node()
        if node is None or len(self.problems.errors) > before:
            return None
        if "sandbox" in self.raw:
            self._error("'sandbox' cannot be applied to one node; set it in the settings")
            return None
        note_keys(self.raw, node, self._title, self.problems)
        return node

    def _node(self) -> Node | None:
        if not isinstance(self.raw.get("id"), str) or not str(self.raw["id"]).strip():
            self._error("missing required field 'id'")
            return None
        if self.id == "INPUTS":
            self._error("node id 'INPUTS' is reserved for the $INPUTS.<name> parameter surface")
        if (kind := self._kind()) is None:
            return None
        self._check_common(kind)
        timeout, idle = self._milliseconds("timeout"), self._milliseconds("idle_timeout")
        context, resumes = self._context(kind)
        return Node(
            id=self.id,
            kind=kind,
            line=self.line,
            text=str(self.raw[kind]).strip() if kind in _TEXTS else "",
            description=self._text("description"),
            depends_on=self._texts("depends_on") or (),
            when=self._text("when"),
            trigger_rule=self._one_of("trigger_rule", TRIGGER_RULES) or "all_success",
            retry=self._retry(kind),
            loop=self._loop(kind) if kind in ("loop", "loop_group") else None,
            approval=self._approval() if kind == "approval" else None,
            fan_out=self._fan_out() if kind == "workflow" and "fan_out" in self.raw else None,
            bindings=self._bindings(kind),
            runtime=self._one_of("runtime", ("bun", "uv")),
            deps=self._texts("deps") or (),
            timeout_ms=timeout,
            idle_timeout_ms=idle,
            always_run=self.raw.get("always_run") is True,
            input=self._text("input"),
            isolation=self._one_of("isolation", ("inherit", "worktree")) or "inherit",
            context=context,
            resumes=resumes,
            agent=self._text("agent"),
            output_format=self._mapping("output_format"),
            output_type=self._text("output_type"),
            model=self._text("model"),
            effort=self._one_of("effort", EFFORTS),
            system_prompt=self._text("systemPrompt"),
            max_budget_usd=self._number("maxBudgetUsd"),
            allowed_tools=self._texts("allowed_tools"),
            denied_tools=self._texts("denied_tools") or (),
            skills=self._texts("skills") or (),
            agents=self._agents(),
            fallback_model=self._text("fallbackModel"),
            mcp=self._text("mcp"),
            hooks=self._hooks(),
        )

    def _kind(self) -> NodeKind | None:
        if not self._bodies_are_valid():
            return None
        present: list[NodeKind] = []
        for kind in KINDS:
            body = self.raw.get(kind)
            if body.strip() if isinstance(body, str) else body is not None:
                present.append(kind)
        if len(present) > 1:
            self._error(
                "'command', 'prompt', 'bash', 'loop', 'loop_group', 'approval', 'cancel',"
                " 'script', 'include', and 'workflow' are mutually exclusive"
            )
            return None
        if present:
            return present[0]
        for kind in ("bash", "prompt", "script"):
            if isinstance(self.raw.get(kind), str):
                self._error(f"'{kind}' cannot be empty")
                return None
        self._error(
            "must have either 'command', 'prompt', 'bash', 'loop', 'loop_group', 'approval',"
            " 'cancel', 'script', 'include', or 'workflow'"
        )
        return None

    def _bodies_are_valid(self) -> bool:
        for kind in KINDS:
            value = self.raw.get(kind)
            wanted = str if kind in _TEXTS else dict
            if kind in self.raw and not isinstance(value, wanted):
                self._error(f"'{kind}' must be {'text' if wanted is str else 'names with values'}")
                return False
        return True

    def _check_common(self, kind: NodeKind) -> None:
        name = self.raw.get("command")
        if kind == "loop":
            name = (self._mapping("loop") or {}).get("command")
        if isinstance(name, str) and not is_command_name(name.strip()):
            self._error(f"'command' invalid command name \"{name.strip()}\"")
        if kind == "script" and self.raw.get("runtime") is None:
            self._error("'runtime' is required for script nodes ('bun' or 'uv')")
        if kind in ("loop", "loop_group", "workflow") and "retry" in self.raw:
            self._error(f"'retry' is not supported on {kind} nodes")
        if kind == "workflow" and "with" in self.raw and "input" in self.raw:
            self._error("'with:' and 'input:' cannot both be set on a workflow node")
        for key in _NOT_FOR_KIND.get(kind, ("isolation", "fan_out")):
            if key in self.raw:
                self._error(f"'{key}' is not supported on {kind} nodes")

    def _retry(self, kind: NodeKind) -> Retry | None:
        raw = self._mapping("retry")
        if raw is None or kind in ("loop", "loop_group", "workflow"):
            return None
        attempts, delay = raw.get("max_attempts"), raw.get("delay_ms", 3000)
        if not _is_int(attempts) or not 1 <= cast("int", attempts) <= MAX_RETRIES:
            self._error("'retry.max_attempts' must be between 1 and 5")
            return None
        low, high = _RETRY_MS
        if not _is_number(delay) or not low <= cast("float", delay) <= high:
            self._error("'retry.delay_ms' must be a number between 1000 and 60000")
            return None
        if raw.get("on_error", "transient") not in ("transient", "all"):
            self._error("'retry.on_error' must be transient or all")
            return None
        on_error = "all" if raw.get("on_error") == "all" else "transient"
        return Retry(
            max_attempts=cast("int", attempts),
            delay_ms=int(cast("float", delay)),
            on_error=on_error,
        )

    def _loop(self, kind: NodeKind) -> Loop | None:
        raw = self._mapping(kind) or {}
        count = raw.get("max_iterations")
        texts = {key: raw.get(key) for key in ("until", "until_bash", "until_field")}
        if not _is_int(count) or cast("int", count) < 1:
            self._error(f"'{kind}.max_iterations' must be a positive integer")
            return None
        blank = [key for key, value in texts.items() if value is not None and not _is_text(value)]
        if blank:
            self._error(f"'{kind}.{blank[0]}' must be a non-blank text")
            return None
        channels = [key for key in texts if texts[key] is not None]
        if kind == "loop_group":
            channels = [key for key in channels if key != "until_field"]
        if not channels:
            self._error("'until' loop node requires a completion channel: until or until_bash")
        if raw.get("interactive") is True and not raw.get("gate_message"):
            self._error("interactive loop requires 'loop.gate_message' (non-empty string)")
        prompt, command = raw.get("prompt"), raw.get("command")
        if kind == "loop" and bool(prompt) == bool(command):
            self._error("loop node accepts exactly one of 'loop.prompt' or 'loop.command'")
        if kind == "loop" and texts["until_field"] is not None:
            self._check_until_field(str(texts["until_field"]).strip())
        return Loop(
            max_iterations=cast("int", count),
            prompt=prompt if isinstance(prompt, str) and kind == "loop" else None,
            command=command.strip() if isinstance(command, str) and kind == "loop" else None,
            until=cast("str | None", texts["until"]),
            until_bash=cast("str | None", texts["until_bash"]),
            until_field=cast("str | None", texts["until_field"]) if kind == "loop" else None,
            fresh_context=raw.get("fresh_context") is True,
            interactive=raw.get("interactive") is True,
            gate_message=cast("str | None", raw.get("gate_message")),
            signal_completes=raw.get("signal_completes") is True,
            nodes=self._body(raw) if kind == "loop_group" else (),
        )

    def _check_until_field(self, name: str) -> None:
        schema = self._mapping("output_format") or {}
        properties = schema.get("properties")
        fields = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
        required = schema.get("required")
        entry = fields.get(name)
        kind = cast("dict[str, object]", entry).get("type") if isinstance(entry, dict) else None
        if name not in fields:
            self._error(f"'loop.until_field' names '{name}', which output_format does not declare")
        elif not isinstance(required, list) or name not in required:
            self._error(
                f"'loop.until_field' names '{name}', which must be in output_format.required"
            )
        elif isinstance(kind, str) and kind != "boolean":
            self._error(f"'loop.until_field' names '{name}', which must be 'boolean'")

    def _body(self, raw: Mapping[str, object]) -> tuple[Node, ...]:
        entries = raw.get("nodes")
        if not isinstance(entries, list) or not entries:
            self._error("'loop_group.nodes' must have at least one node")
            return ()
        nodes: list[Node] = []
        for index, entry in enumerate(cast("list[object]", entries)):
            if not isinstance(entry, dict):
                self._error(f"'loop_group.nodes.{index}' must be names with values")
                continue
            fields = cast("dict[str, object]", entry)
            line = self.lines.get(id(fields), self.line)
            reader = NodeReader(fields, index, line, self.problems, self.lines)
            reader.label = f"{self._title} → loop_group node '{reader.id}'"
            if (node := reader.read()) is not None:
                nodes.append(node)
        return tuple(nodes)

    def _approval(self) -> ApprovalSettings | None:
        raw = self._mapping("approval") or {}
        message = raw.get("message")
        if not isinstance(message, str) or not message:
            self._error("'approval.message' must not be empty")
            return None
        if "decisions" in raw and "on_reject" in raw:
            self._error("'approval.decisions' and 'approval.on_reject' are mutually exclusive.")
        return ApprovalSettings(
            message=message,
            decisions=self._decisions(raw["decisions"]) if "decisions" in raw else (),
            capture_response=raw.get("capture_response") is True,
            on_reject=self._rework(raw["on_reject"]) if "on_reject" in raw else None,
        )

    def _decisions(self, raw: object) -> tuple[ApprovalChoice, ...]:
        entries = cast("list[object]", raw) if isinstance(raw, list) else []
        decisions: list[ApprovalChoice] = []
        for entry in entries:
            fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
            name, label = fields.get("id"), fields.get("label")
            if not isinstance(name, str) or not _KEBAB.fullmatch(name.strip()):
                self._error("'approval.decisions[].id' must be kebab-case")
                return ()
            decisions.append(
                ApprovalChoice(id=name.strip(), label=label if isinstance(label, str) else None)
            )
        names = [item.id for item in decisions]
        if len(set(names)) != len(names):
            self._error("'approval.decisions' ids must be unique")
        if "approve" not in names:
            self._error("'approval.decisions' must include an 'approve' entry")
        return tuple(decisions)

    def _rework(self, raw: object) -> Rework | None:
        fields = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
        prompt, attempts = fields.get("prompt"), fields.get("max_attempts", 3)
        if not isinstance(prompt, str) or not prompt:
            self._error("'approval.on_reject.prompt' must be a non-empty string")
            return None
        if not _is_int(attempts) or not 1 <= cast("int", attempts) <= _MAX_REWORKS:
            self._error("'approval.on_reject.max_attempts' must be between 1 and 10")
            return None
        return Rework(prompt=prompt, max_attempts=cast("int", attempts))

    def _fan_out(self) -> FanOut | None:
        raw = self._mapping("fan_out") or {}
        items, name, at_once = raw.get("items"), raw.get("as"), raw.get("max_parallel", 5)
        join = raw.get("join", "all_done")
        if not isinstance(items, str) or not items:
            self._error("'fan_out.items' must reference a node output that produces a JSON array")
        elif not _is_int(at_once) or cast("int", at_once) < 1:
            self._error("'fan_out.max_parallel' must be >= 1")
        elif join not in ("all_done", "all_success"):
            self._error("'fan_out.join' must be all_done or all_success; first_success is rejected")
        elif name is not None and name in (self._mapping("with") or {}):
            self._error(f"'fan_out.as: {name}' collides with a 'with:' key of the same name")
        else:
            return FanOut(
                items=items,
                name=name if isinstance(name, str) else None,
                max_parallel=cast("int", at_once),
                join="all_success" if join == "all_success" else "all_done",
            )
        return None

    def _bindings(self, kind: NodeKind) -> dict[str, object]:
        if kind not in _BINDING_KINDS or "with" not in self.raw:
            return {}
        if (bindings := self._mapping("with")) is None:
            return {}
        variables: dict[str, str] = {}
        for name, value in bindings.items():
            if not _INPUT_NAME.fullmatch(name):
                self._error(f"'with' invalid {kind} input name '{name}'")
            if kind not in ("command", "script"):
                continue
            if (other := variables.setdefault(input_variable(name), name)) != name:
                self._error(f"'with' {kind} bindings '{other}' and '{name}' both map to env var")
            if isinstance(value, dict):
                self._check_binding(kind, name, cast("dict[str, object]", value))
        return bindings

    def _check_binding(self, kind: str, name: str, value: Mapping[str, object]) -> None:
        source = value.get("from")
        if not isinstance(source, str) or value.keys() - {"from", "if_skipped"}:
            self._error(
                f"'with.{name}' {kind} binding '{name}': an object value must be a binding"
                " directive { from: '$node.output[.field]', if_skipped?: <value> }"
            )
            return
        reference = whole_reference(source)
        if reference is None or reference.node is None:
            self._error(f"'with.{name}' 'from' must be exactly one whole '$node.output' reference")

    def _agents(self) -> dict[str, dict[str, object]]:
        raw = self._mapping("agents")
        if raw is None:
            return {}
        if not raw:
            self._error("'agents' must have at least one entry")
        for name, entry in raw.items():
            fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
            if not _KEBAB.fullmatch(name):
                self._error(f"'agents.{name}' agent IDs must be kebab-case (a-z, 0-9, hyphen)")
            for key in ("description", "prompt"):
                if not isinstance(fields.get(key), str) or not fields[key]:
                    self._error(f"'agents.{name}.{key}' '{key}' is required")
        return cast("dict[str, dict[str, object]]", raw)

    def _hooks(self) -> dict[str, object]:
        raw = self._mapping("hooks") or {}
        for event, matchers in raw.items():
            if event not in HOOK_EVENTS:
                self._error(f"'hooks' Unrecognized key(s) in object: '{event}'")
            entries = cast("list[object]", matchers) if isinstance(matchers, list) else [None]
            fields = [cast("dict[str, object]", item) for item in entries if isinstance(item, dict)]
            if len(fields) < len(entries) or any(
                not isinstance(item.get("response"), dict)
                or not isinstance(item.get("matcher", ""), str)
                for item in fields
            ):
                self._error(f"'hooks.{event}' must be a list of {{ matcher, response }}")
        return raw

    def _context(self, kind: NodeKind) -> tuple[str, str | None]:
        raw = self.raw.get("context")
        if isinstance(raw, dict):
            source = cast("dict[str, object]", raw).get("resume")
            if not isinstance(source, str) or not source.strip():
                self._error("'context.resume' must name a node")
            elif kind not in ("command", "prompt"):
                self._error("'context.resume' is only supported on command and prompt nodes")
            else:
                return "resume", source.strip()
        elif raw not in (None, "fresh", "shared"):
            self._error("'context' must be fresh, shared or {resume: node}")
        return ("shared" if raw == "shared" else "fresh"), None

    @property
    def _title(self) -> str:
        return self.label or f"Node '{self.id}'"

    def _text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is not None and not isinstance(value, str):
            self._error(f"'{key}' must be text")
            return None
        return value

    def _texts(self, key: str) -> tuple[str, ...] | None:
        value = self.raw.get(key)
        if value is None:
            return None
        entries = cast("Sequence[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(entry, str) for entry in entries):
            self._error(f"'{key}' must be a list of texts")
            return None
        return tuple(str(entry) for entry in entries)

    def _mapping(self, key: str) -> dict[str, object] | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._error(f"'{key}' must be names with values")
            return None
        return cast("dict[str, object]", value)

    def _number(self, key: str) -> float | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if not _is_number(value) or not 0 < cast("float", value) < math.inf:
            self._error(f"'{key}' must be a positive number")
            return None
        return float(cast("float", value))

    def _milliseconds(self, key: str) -> int | None:
        value = self._number(key)
        return None if value is None else max(1, int(value))

    def _one_of(self, key: str, names: Sequence[Choice]) -> Choice | None:
        value = self.raw.get(key)
        if value is not None and value not in names:
            self._error(f"'{key}' must be one of {', '.join(names)}")
            return None
        return cast("Choice | None", value)

    def _error(self, text: str) -> None:
        self.problems.errors.append((self.line, f"Node '{self.id}': {text}"))


def is_command_name(name: str) -> bool:
    """Whether a name can only be that of a file in the folder of commands."""
    return bool(name) and not name.startswith(".") and not re.search(r"[/\\]|\.\.", name)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
