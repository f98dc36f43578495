"""A graph that is being run, and the values that its nodes can refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.json_file import as_object
from mainspring.runtime.workflows.format.definition import Node, Workflow
from mainspring.runtime.workflows.format.references import (
    NodeOutput,
    Reference,
    fill_text,
    find_references,
    output_value,
    parse_atom,
    split_condition,
    whole_reference,
)
from mainspring.runtime.workflows.run_state import RunState


@dataclass(slots=True)
class Stop:
    """Whether a run, or the run of a workflow in it, is to end, and why."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The nodes of a workflow, of an included one, or of one iteration of a group."""

    prefix: str
    """Precedes the ids of its nodes in their paths."""
    nodes: tuple[Node, ...]
    workflow: Workflow
    inputs: Mapping[str, object]
    arguments: str
    workspace: Path | None
    outer: Scope | None = None
    """The graph around a group, whose outputs the body can read."""
    previous: str | None = None
    """The prefix of the previous iteration."""
    stop: Stop = field(default_factory=Stop)
    depth: int = 0
    """How many workflows contain this one."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """`LOOP_PREV_OUTPUT` and the like."""

    def path(self, node: Node) -> str:
        return self.prefix + node.id

    def find(self, node_id: str) -> tuple[str, Node] | None:
        """The path of the node that a reference in this scope means."""
        scope: Scope | None = self
        while scope is not None:
            for node in scope.nodes:
                if node.id == node_id:
                    return scope.path(node), node
            scope = scope.outer
        return None


def declared_fields(node: Node) -> tuple[str, ...] | None:
    """The fields of a node's `output_format`."""
    properties = as_object((node.output_format or {}).get("properties"))
    return None if properties is None else tuple(properties)


def referenced_paths(scope: Scope, texts: Iterable[str]) -> Iterator[str]:
    """The paths of the nodes whose outputs some texts or conditions need."""
    for text in texts:
        for _, _, reference in find_references(text):
            yield from _path_of(scope, reference)
        for atoms in split_condition(text) if "$" in text and ".output" not in text else ():
            for atom in atoms:
                if (parsed := parse_atom(atom)) is not None:
                    yield from _path_of(scope, parsed.reference)


def _path_of(scope: Scope, reference: Reference) -> Iterator[str]:
    if reference.node is None:
        return
    if reference.is_previous and scope.previous is not None:
        yield scope.previous + reference.node
    elif (located := scope.find(reference.node)) is not None:
        yield located[0]


def value_reader(
    scope: Scope, state: RunState, outputs: Mapping[str, str], variables: Mapping[str, str]
) -> Callable[[Reference], object]:
    """Returns the function that finds the value of a reference. `outputs`: whole outputs, by path,
    of nodes whose state has only the beginning."""

    def output_of(path: str, node: Node | None) -> NodeOutput | None:
        current = state.nodes.get(path)
        declared = None if node is None else declared_fields(node)
        return None if current is None else current.as_output(declared, outputs.get(path))

    def value_of(reference: Reference) -> object:
        if reference.input is not None:
            return _input_value(scope, reference.input)
        if reference.name is not None:
            own = {"ARGUMENTS": scope.arguments, "USER_MESSAGE": scope.arguments}
            return {**variables, **own, **scope.variables}.get(reference.name, "")
        name = reference.node or ""
        if reference.is_previous:
            if scope.previous is None:
                return ""
            output = output_of(scope.previous + name, None)
            return "" if output is None else output_value(name, output, reference.field)
        located = scope.find(name)
        path, node = located or (scope.prefix + name, None)
        return output_value(name, output_of(path, node), reference.field)

    return value_of


def _input_value(scope: Scope, name: str) -> object:
    if name not in scope.inputs:
        known = ", ".join(f"$INPUTS.{item}" for item in scope.inputs) or "none"
        raise InvalidInput(f"unknown input $INPUTS.{name}; known: {known}")
    return scope.inputs[name]


def bound_values(
    scope: Scope, state: RunState, node: Node, value_of: Callable[[Reference], object]
) -> dict[str, object]:
    """The values that `with` gives to the inputs of a command, a script or another workflow.

    Raises: InvalidInput: a node that it reads did not run, and there is no other value.
    """
    values: dict[str, object] = {}
    for name, binding in node.bindings.items():
        directive = as_object(binding) if node.kind in ("command", "script") else None
        if directive is not None:
            source = whole_reference(str(directive["from"]))
            located = None if source is None else scope.find(source.node or "")
            current = None if located is None else state.nodes.get(located[0])
            if source is not None and current is not None and current.status != "skipped":
                values[name] = value_of(source)
            elif "if_skipped" in directive:
                values[name] = directive["if_skipped"]
            else:
                raise InvalidInput(f"with.{name}: {directive['from']} did not run")
        elif isinstance(binding, str):
            values[name] = _text_value(binding, value_of)
        else:
            values[name] = binding
    return values


def _text_value(text: str, value_of: Callable[[Reference], object]) -> object:
    reference = whole_reference(text)
    return fill_text(text, value_of) if reference is None else value_of(reference)
