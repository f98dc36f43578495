"""Reads a workflow from YAML: the same verdict and warnings as Archon, with lines, and our own
notes about fields that have no effect here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.definition_files.yaml_reader import YamlReader, YamlValueError
from mainspring.runtime.workflows.format.definition import (
    EFFORTS,
    NODE_KEYS,
    WORKFLOW_KEYS,
    InputSpec,
    Node,
    Workflow,
    input_variable,
)
from mainspring.runtime.workflows.format.node_reader import NodeReader
from mainspring.runtime.workflows.format.node_warnings import NodeProblems, unknown_nested
from mainspring.runtime.workflows.format.references import condition_problem
from mainspring.runtime.workflows.format.structure import (
    graph_problem,
    outcome_problem,
    pause_node,
    unreachable_nodes,
)

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # many folders have none

MAX_FILE_BYTES = 2_000_000
"""Larger files are refused: a workflow is read by people."""
_MAX_VALUES = 400_000
"""Bounds what aliases can expand to; a workflow of 10,000 nodes has about 100,000 values."""
_NESTED: Mapping[str, frozenset[str]] = {
    "worktree": frozenset(("enabled",)),
    "container": frozenset(("enabled", "write_back")),
    "evidence_policy": frozenset(("required",)),
}
_INPUT_KEYS = frozenset(("required", "default", "description"))
_PROVIDERS = frozenset(("claude", "codex", "pi", "copilot", "opencode"))
"""The providers that Archon knows; here the model names its provider."""
_NO_EFFECT = {
    "webSearchMode": "search follows the settings of the runner",
    "betas": "beta headers of one provider",
    "thinking": "use effort",
    "persist_sessions": "each run starts its own conversations",
    "requires": "what a run needs is checked when it is used",
    "provider": "the model names its provider",
}
_ISOLATING = ("container", "sandbox")
"""Promises of isolation that a file cannot make here: refused instead of ignored."""


class ReadWorkflow(Struct, frozen=True, kw_only=True):
    """A file, read."""

    file: str
    """For display."""
    workflow: Workflow | None = None
    error: str | None = None
    line: int | None = None
    """Where the error is."""
    warnings: tuple[tuple[int, str], ...] = ()
    """As Archon words them, with lines."""
    notes: tuple[tuple[int, str], ...] = ()
    """Our own warnings, with lines."""


class _FileError(Exception):
    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def read_workflow(text: str, file: str) -> ReadWorkflow:
    """Read a workflow. Every problem of the file is in the result; nothing is raised."""
    problems = NodeProblems()
    try:
        raw, lines = _parse(text, file)
        workflow = _workflow(raw, lines, problems)
    except _FileError as error:
        return ReadWorkflow(
            file=file, error=str(error), line=error.line, notes=tuple(problems.notes)
        )
    return ReadWorkflow(
        file=file,
        workflow=workflow,
        warnings=tuple(problems.warnings),
        notes=tuple(problems.notes),
    )


def _parse(text: str, file: str) -> tuple[dict[str, object], dict[int, int]]:
    """The values of a file, and the line of each mapping by its identity."""
    if len(text) > MAX_FILE_BYTES:
        raise _FileError(f"the file is over {MAX_FILE_BYTES} bytes")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it is available
    try:
        root: yaml.nodes.Node | None = loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise _FileError(f"YAML parse error: {error.problem}", line) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _FileError(f"YAML parse error: {(str(error).splitlines() or ['?'])[0]}") from error
    if not isinstance(root, yaml.MappingNode):
        raise _FileError("YAML file is empty or does not contain an object", 1)
    reader = YamlReader(file, values_left=_MAX_VALUES)
    try:
        raw = cast("dict[str, object]", reader.plain(root))
    except YamlValueError as error:
        raise _FileError(str(error), error.node.start_mark.line + 1) from error
    lines: dict[int, int] = {}
    _add_lines(root, raw, lines)
    return raw, lines


def _add_lines(node: yaml.nodes.Node, value: object, lines: dict[int, int]) -> None:
    """Note the lines of the nodes of a workflow and of groups in it."""
    if isinstance(value, dict) and isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value in ("nodes", "loop_group"):
                _add_lines(child, cast("dict[str, object]", value).get(key.value), lines)
    elif isinstance(value, list) and isinstance(node, yaml.SequenceNode):
        for child, entry in zip(node.value, cast("list[object]", value), strict=True):
            lines[id(entry)] = child.start_mark.line + 1
            _add_lines(child, entry, lines)


def _workflow(
    raw: Mapping[str, object], lines: Mapping[int, int], problems: NodeProblems
) -> Workflow:
    name, description = _names(raw)
    nodes = _nodes(raw, lines, problems)
    if (problem := graph_problem(nodes)) is not None:
        raise _FileError(problem.text, problem.node.line if problem.node else None)
    _check_providers(raw, lines)
    is_interactive = raw.get("interactive") is True
    if not is_interactive and (pause := pause_node(nodes)) is not None:
        is_interactive = True
        problems.warnings.append(
            (
                1,
                f"Workflow '{name}': {pause} 'interactive: true' has been applied for this run only"
                " (this grace period ends in a future release — see #2738); add the declaration to"
                " the file to silence this warning.",
            )
        )
    _note_workflow_keys(raw, name, problems)
    workflow = Workflow(
        name=name,
        description=description,
        nodes=nodes,
        model=_text(raw, "model"),
        effort=_effort(raw, str(name), problems),
        fallback_model=_text(raw, "fallbackModel"),
        interactive=is_interactive,
        uses_worktree=_worktree(raw),
        requires_evidence=_evidence(raw),
        mutates_checkout=_truth(raw, "mutates_checkout"),
        inputs=_inputs(raw),
        returns=_selector(raw, "returns"),
        outcome_field=_selector(raw, "outcome_field"),
        tags=tuple(tag for tag in _list(raw, "tags") if isinstance(tag, str)),
    )
    if workflow.returns is not None and workflow.node(workflow.returns) is None:
        raise _FileError(
            f"Workflow declares returns: '{workflow.returns}' but no top-level node has that id"
        )
    if (text := outcome_problem(workflow)) is not None:
        raise _FileError(text)
    _note_conditions(nodes, problems)
    return workflow


def _names(raw: Mapping[str, object]) -> tuple[str, str]:
    """The name and the description; the file must be of the present format."""
    name, description = raw.get("name"), raw.get("description")
    for key, value in (("name", name), ("description", description)):
        if not isinstance(value, str) or not value:
            raise _FileError(f"Missing required field '{key}'", 1)
    if raw.get("steps"):
        raise _FileError("`steps:` format has been removed. Workflows now use `nodes:` (DAG)")
    for key in _ISOLATING:
        if _asks_for_isolation(raw.get(key)):
            raise _FileError(f"'{key}' cannot be kept from a file; set the sandbox in the settings")
    return str(name), str(description)


def _nodes(
    raw: Mapping[str, object], lines: Mapping[int, int], problems: NodeProblems
) -> tuple[Node, ...]:
    entries = _list(raw, "nodes")
    if not entries:
        raise _FileError("Workflow must have 'nodes:' configuration")
    nodes: list[Node] = []
    for index, entry in enumerate(entries):
        line = lines.get(id(entry), 1)
        if not isinstance(entry, dict):
            problems.errors.append((line, f"Node '#{index + 1}': must be names with values"))
            continue
        fields = cast("dict[str, object]", entry)
        if (node := NodeReader(fields, index, line, problems, lines).read()) is not None:
            nodes.append(node)
    if problems.errors:
        texts = "; ".join(text for _, text in problems.errors)
        raise _FileError(f"DAG node validation failed: {texts}", problems.errors[0][0])
    return tuple(nodes)


def _check_providers(raw: Mapping[str, object], lines: Mapping[int, int]) -> None:
    provider = raw.get("provider")
    if isinstance(provider, str) and provider and provider not in _PROVIDERS:
        raise _FileError(f"Unknown provider '{provider}'")
    for entry in _list(raw, "nodes"):
        fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        own = fields.get("provider")
        if own is not None and (not isinstance(own, str) or own.strip() not in _PROVIDERS):
            text = f"Node '{fields.get('id')}': unknown provider '{own}'"
            raise _FileError(text, lines.get(id(fields)))


def _asks_for_isolation(value: object) -> bool:
    return isinstance(value, dict) and cast("dict[str, object]", value).get("enabled") is not False


def _note_workflow_keys(raw: Mapping[str, object], name: str, problems: NodeProblems) -> None:
    title = f"Workflow '{name}'"
    for key, value in raw.items():
        found: list[str] = []
        if key not in WORKFLOW_KEYS:
            hint = ""
            if key in NODE_KEYS:
                hint = f" ('{key}' is valid on individual nodes, not at workflow level.)"
            found.append(f"{title}: unknown key '{key}' will be ignored.{hint}")
        elif key in _NESTED:
            found += unknown_nested(title, key, value, _NESTED[key])
        elif key == "inputs" and isinstance(value, dict):
            for input_name, spec in cast("dict[str, object]", value).items():
                found += unknown_nested(title, f"inputs.{input_name}", spec, _INPUT_KEYS)
        if key in _NO_EFFECT:
            problems.notes.append((1, f"{title}: '{key}' has no effect ({_NO_EFFECT[key]})"))
        problems.warnings += [(1, text) for text in found]


def _note_conditions(nodes: tuple[Node, ...], problems: NodeProblems) -> None:
    for node in nodes:
        if node.when is not None and (text := condition_problem(node.when)) is not None:
            problems.notes.append((node.line, f"Node '{node.id}': never runs, since {text}"))
        if node.loop is not None:
            _note_conditions(node.loop.nodes, problems)
    lines = {node.id: node.line for node in nodes}
    for name in unreachable_nodes(nodes):
        text = f"Node '{name}': never runs, since a node before it always ends the run"
        problems.notes.append((lines[name], text))


def _effort(raw: Mapping[str, object], name: str, problems: NodeProblems) -> str | None:
    effort, old = raw.get("effort"), raw.get("modelReasoningEffort")
    effort = effort if effort in EFFORTS else None
    if old in EFFORTS[:-1]:
        text = (
            f"'modelReasoningEffort: {old}' is deprecated and has been applied as 'effort: {old}'."
            " NOTE: 'effort:' applies to EVERY node in this workflow, including non-Codex ones,"
            " where the old Codex-only field applied to none. Set 'effort:' per node if only some"
            " nodes should reason that deeply."
            if effort is None
            else f"'modelReasoningEffort: {old}' is deprecated and was IGNORED because this"
            f" workflow also declares 'effort: {effort}', which now applies on every provider"
            " including Codex. Delete the 'modelReasoningEffort:' line."
        )
        problems.warnings.append((1, f"Workflow '{name}': {text}"))
    return cast("str | None", effort or (old if old in EFFORTS[:-1] else None))


def _inputs(raw: Mapping[str, object]) -> dict[str, InputSpec]:
    value = raw.get("inputs")
    entries = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    inputs: dict[str, InputSpec] = {}
    variables: dict[str, str] = {}
    for name, entry in entries.items():
        spec = cast("dict[str, object]", entry) if isinstance(entry, dict) else None
        is_required = spec is not None and spec.get("required") is True
        if spec is None or (is_required and "default" in spec):
            continue  # Archon drops it
        if (other := variables.setdefault(input_variable(name), name)) != name:
            raise _FileError(f"Workflow inputs '{other}' and '{name}' both map to one env var")
        text = spec.get("description")
        inputs[name] = InputSpec(
            required=is_required,
            default=spec.get("default"),
            has_default="default" in spec,
            description=text if isinstance(text, str) else None,
        )
    return inputs


def _selector(raw: Mapping[str, object], key: str) -> str | None:
    value = raw.get(key)
    if value is None and key not in raw:
        return None
    if not isinstance(value, str) or not value.strip():
        raise _FileError(f"Invalid '{key}': expected a non-empty text")
    return value.strip()


def _evidence(raw: Mapping[str, object]) -> bool:
    value = raw.get("evidence_policy")
    if value is None:
        return False
    required = (as_object(value) or {}).get("required")
    if not isinstance(required, bool):
        raise _FileError("Invalid evidence_policy: expected { required: boolean }.")
    return required


def _worktree(raw: Mapping[str, object]) -> bool | None:
    value = raw.get("worktree")
    enabled = (as_object(value) or {}).get("enabled")
    return enabled if isinstance(enabled, bool) else None


def _truth(raw: Mapping[str, object], key: str) -> bool | None:
    value = raw.get(key)
    return value if isinstance(value, bool) else None


def _text(raw: Mapping[str, object], key: str) -> str | None:
    value = raw.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _list(raw: Mapping[str, object], key: str) -> list[object]:
    value = raw.get(key)
    return cast("list[object]", value) if isinstance(value, list) else []
