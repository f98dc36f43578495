"""The graph of a workflow: order, layers, and what makes it impossible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.workflows.format.definition import Node, Workflow
from mainspring.runtime.workflows.format.references import (
    OUTPUT_REFERENCE,
    WHEN_REFERENCE,
    parse_atom,
    split_condition,
    value_text,
)


class GraphProblem(Struct, frozen=True):
    node: Node | None
    text: str


def execution_layers(nodes: Sequence[Node]) -> list[list[str]]:
    """The ids of the nodes, layer by layer; nodes of one layer can run at the same time. Nodes of a
    cycle, and those behind it, are in none."""
    left = {node.id: {dep for dep in node.depends_on} for node in nodes}
    dependents: dict[str, list[str]] = {}
    for node in nodes:
        for dependency in node.depends_on:
            dependents.setdefault(dependency, []).append(node.id)
    position = {node.id: index for index, node in enumerate(nodes)}
    layers: list[list[str]] = []
    ready = [node.id for node in nodes if not node.depends_on]
    while ready:
        layers.append(ready)
        following: list[str] = []
        for name in ready:
            for other in dependents.get(name, ()):
                left[other].discard(name)
                if not left[other]:
                    following.append(other)
        ready = sorted(set(following), key=position.__getitem__)
    return layers


def missing_dependencies(nodes: Sequence[Node]) -> list[tuple[Node, str]]:
    names = {node.id for node in nodes}
    return [(node, dep) for node in nodes for dep in node.depends_on if dep not in names]


def graph_problem(
    nodes: Sequence[Node], enclosing: Mapping[str, Node] | None = None
) -> GraphProblem | None:
    """The first problem of a graph, or of a group's body. `enclosing`: the nodes around it."""
    outer = enclosing or {}
    problem = _name_problem(nodes, outer) or _order_problem(nodes)
    if problem is not None:
        return problem
    by_id = {node.id: node for node in nodes}
    upstream, known = _upstream(nodes, by_id), {**outer, **by_id}
    for node in nodes:
        text = (
            _unknown_reference(node, by_id, outer)
            or _prose_comparison(node, known)
            or _not_upstream(node, by_id, upstream, is_body=enclosing is not None)
        )
        if text is not None:
            return GraphProblem(node, text)
    for node in nodes:
        if (problem := _body_problem(node, known)) is not None:
            return problem
    return None


def _name_problem(nodes: Sequence[Node], outer: Mapping[str, Node]) -> GraphProblem | None:
    names: set[str] = set()
    for node in nodes:
        if node.id in names:
            return GraphProblem(node, f"Duplicate node id: '{node.id}'")
        if node.id in outer:
            return GraphProblem(node, f"Node id '{node.id}' shadows a node id in the enclosing DAG")
        names.add(node.id)
    return None


def _order_problem(nodes: Sequence[Node]) -> GraphProblem | None:
    for node, dependency in missing_dependencies(nodes):
        return GraphProblem(node, f"Node '{node.id}' depends_on unknown node '{dependency}'")
    ordered = {name for layer in execution_layers(nodes) for name in layer}
    if cycle := [node for node in nodes if node.id not in ordered]:
        names = ", ".join(node.id for node in cycle)
        return GraphProblem(cycle[0], f"Cycle detected among nodes: {names}")
    return None


def _body_problem(node: Node, around: Mapping[str, Node]) -> GraphProblem | None:
    if node.kind != "loop_group" or node.loop is None:
        return None
    if any(child.kind == "workflow" for child in node.loop.nodes):
        text = "'workflow' (sub-run) is not supported inside a loop_group body"
        return GraphProblem(node, f"loop_group '{node.id}' body: {text}")
    problem = graph_problem(node.loop.nodes, around)
    if problem is None:
        return None
    return GraphProblem(problem.node, f"loop_group '{node.id}' body: {problem.text}")


def _upstream(nodes: Sequence[Node], by_id: Mapping[str, Node]) -> Mapping[str, set[str]]:
    """The nodes that run before each node. Computed in order, so each is looked at once."""
    upstream: dict[str, set[str]] = {}
    for layer in execution_layers(nodes):
        for name in layer:
            direct = by_id[name].depends_on
            upstream[name] = set(direct).union(*(upstream[dep] for dep in direct))
    return upstream


def node_texts(node: Node) -> Iterator[tuple[str, str]]:
    """The texts of a node that may refer to outputs, by field."""
    field = {"approval": "approval.message", "loop": "loop.prompt"}.get(node.kind, node.kind)
    texts: list[tuple[str, str | None]] = [(field, node.text), ("systemPrompt", node.system_prompt)]
    if node.approval is not None:
        texts.append((field, node.approval.message))
        if node.approval.on_reject is not None:
            texts.append(("approval.on_reject.prompt", node.approval.on_reject.prompt))
    if node.loop is not None:
        texts += ((field, node.loop.prompt), (f"{node.kind}.until_bash", node.loop.until_bash))
    if node.kind == "workflow":
        texts.append(("input", node.input))
    if node.fan_out is not None:
        texts.append(("fan_out.items", node.fan_out.items))
    for name, value in node.bindings.items() if node.kind != "include" else ():
        directive = as_object(value)
        text = value if directive is None else directive.get("from")
        texts.append((f"with.{name}", text if isinstance(text, str) else None))
    for name, agent in node.agents.items():
        texts.append((f"agents.{name}.prompt", value_text(agent.get("prompt"))))
    yield from ((name, text) for name, text in texts if text and "$" in text)


def _unknown_reference(
    node: Node, by_id: Mapping[str, Node], outer: Mapping[str, Node]
) -> str | None:
    body = {} if node.loop is None else {child.id: child for child in node.loop.nodes}
    for field, text in node_texts(node):
        for match in OUTPUT_REFERENCE.finditer(text):
            name = match[2]
            if name == "INPUTS" or match[1] or name in by_id or name in outer:
                continue
            if not (field.endswith("until_bash") and name in body):
                return f"Node '{node.id}' field '{field}' references unknown node '${name}.output'."
    for match in WHEN_REFERENCE.finditer(node.when or ""):
        name = match[1]
        if name != "INPUTS" and name not in by_id and name not in outer:
            return f"Node '{node.id}' field 'when' references unknown node '${name}.{match[2]}'."
    return None


def _prose_comparison(node: Node, known: Mapping[str, Node]) -> str | None:
    """A condition that compares the whole text of a model's answer."""
    for atoms in split_condition(node.when) if node.when else ():
        for text in atoms:
            atom = parse_atom(text)
            if atom is None or atom.reference.node is None or atom.reference.field is not None:
                continue
            producer = known.get(atom.reference.node)
            if producer is None:
                continue
            is_prose = producer.kind in ("command", "prompt", "loop") and (
                producer.output_format is None
            )
            if is_prose or producer.kind == "loop_group":
                return (
                    f"Node '{node.id}' field 'when' compares the whole output of AI node"
                    f" '{producer.id}' to a literal ('{atom.expected}'). That output is free-form"
                    " prose; declare 'output_format' and compare a field, or compute the value in"
                    " a 'bash:' or 'script:' node."
                )
    return None


def _not_upstream(
    node: Node, by_id: Mapping[str, Node], upstream: Mapping[str, set[str]], *, is_body: bool
) -> str | None:
    if node.resumes is not None:
        source = by_id.get(node.resumes)
        if is_body or source is None:
            return f"Node '{node.id}' context.resume references unknown node '{node.resumes}'"
        if source.kind not in ("command", "prompt", "loop"):
            return f"Node '{node.id}' context.resume source '{source.id}' has no conversation"
        if source.id not in upstream[node.id]:
            return f"Node '{node.id}' context.resume source '{source.id}' is not upstream"
    for field, name in _early_references(node):
        if name in by_id and name not in upstream[node.id]:
            return (
                f"Node '{node.id}' '{field}' references '${name}.output', which is not an"
                f" upstream dependency — add '{name}' to '{node.id}'.depends_on"
            )
    return None


def _early_references(node: Node) -> Iterator[tuple[str, str]]:
    """References whose values are needed before a node starts, by field."""
    fields = [("fan_out.items", node.fan_out.items)] if node.fan_out is not None else []
    if node.kind in ("command", "script"):
        fields += [(name, text) for name, text in node_texts(node) if name.startswith("with.")]
    for field, text in fields:
        yield from ((field, match[2]) for match in OUTPUT_REFERENCE.finditer(text))


def pause_node(nodes: Sequence[Node]) -> str | None:
    """Archon's sentence about the first node that waits for a person."""
    for node in nodes:
        if node.kind == "approval":
            return (
                f"Node '{node.id}' is a pause node ('approval:'), but this workflow does not"
                " declare 'interactive: true'. An unattended workflow may never contain a pause"
                " node — declare 'interactive: true' at the workflow level, or remove this gate."
            )
        if node.loop is not None and node.loop.interactive:
            return (
                f"Node '{node.id}' is a pause node ('{node.kind}.interactive: true'), but this"
                " workflow does not declare 'interactive: true'. An unattended workflow may never"
                " contain a pause node — declare 'interactive: true' at the workflow level, or"
                " remove the node-level 'interactive:'."
            )
        if node.loop is not None and (text := pause_node(node.loop.nodes)) is not None:
            return text
    return None


def outcome_problem(workflow: Workflow) -> str | None:
    """Why `outcome_field` cannot be the verdict of a run."""
    field = workflow.outcome_field
    if field is None:
        return None
    if workflow.returns is None:
        return f"Workflow declares outcome_field: '{field}' without returns:"
    node = workflow.node(workflow.returns)
    if node is None or node.kind == "include":
        return None
    schema = node.output_format or {}
    entry = as_object((as_object(schema.get("properties")) or {}).get(field)) or {}
    required = schema.get("required")
    is_declared = (
        node.kind != "loop_group"
        and node.fan_out is None
        and schema.get("type") == "object"
        and entry.get("type") == "boolean"
        and isinstance(required, list)
        and field in required
    )
    if is_declared:
        return None
    return (
        f"Workflow outcome_field: '{field}' must be a required boolean in the output_format of"
        f" node '{node.id}'"
    )


def unreachable_nodes(nodes: Sequence[Node]) -> list[str]:
    """Nodes behind a node that always ends the run."""
    by_id = {node.id: node for node in nodes}
    stops = {node.id for node in nodes if node.kind == "cancel" and node.when is None}
    return [
        node.id
        for node in nodes
        if any(dep in stops for dep in node.depends_on) and node.id in by_id
    ]
