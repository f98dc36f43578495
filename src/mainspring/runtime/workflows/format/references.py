"""References to values (`$node.output.field`, `$INPUTS.name`) and conditions: parsed, never
evaluated as code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.json_file import as_object

NAME = r"[a-zA-Z_][a-zA-Z0-9_-]*"
_FIELD = r"[a-zA-Z_][a-zA-Z0-9_]*"
OUTPUT_REFERENCE = re.compile(rf"\$(LOOP_PREV\.)?({NAME})\.output(?:\.({_FIELD}))?")
_WHOLE_OUTPUT = re.compile(rf"\$({NAME})\.output(?:\.({_FIELD}))?")
_WHOLE_INPUT = re.compile(rf"\$INPUTS\.({NAME})")
WHEN_REFERENCE = re.compile(rf"\$({NAME})\.({_FIELD})")
_REFERENCE = re.compile(
    rf"\$(?:INPUTS\.(?P<input>{NAME})"
    rf"|(?P<prev>LOOP_PREV\.)?(?P<node>{NAME})\.output(?:\.(?P<field>{_FIELD}))?"
    r"|(?P<name>[A-Z][A-Z_]*[A-Z])(?![A-Za-z0-9_]))"
)
_ATOM = re.compile(
    rf"(?:\$INPUTS\.(?P<input>{NAME})"
    rf"|\$(?P<node>{NAME})\.(?P<first>{_FIELD})(?:\.(?P<second>{_FIELD}))?)"
    r"\s*(?P<operator>==|!=|<=|>=|<|>)\s*"
    r"(?:'(?P<quoted>[^']*)'|(?P<plain>-?\d+(?:\.\d+)?|true|false))"
)
_FENCED = re.compile(r"\A[\s\S]*?```(?:json)?[ \t]*\n([\s\S]*?)\n\s*```[\s\S]*\Z")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
VARIABLES = frozenset(
    (
        *("ARGUMENTS", "USER_MESSAGE", "ARTIFACTS_DIR", "STATE_DIR", "WORKFLOW_ID"),
        *("BASE_BRANCH", "DOCS_DIR", "LOOP_PREV_OUTPUT", "LOOP_USER_INPUT", "REJECTION_REASON"),
        *("CONTEXT", "EXTERNAL_CONTEXT", "ISSUE_CONTEXT"),
    )
)
"""Names that stand for a value of the run in prompts and programs."""
Operator: TypeAlias = Literal["==", "!=", "<=", ">=", "<", ">"]


class NodeOutput(Struct, frozen=True, kw_only=True):
    """The result of a node, as other nodes read it."""

    status: str
    text: str = ""
    structured: object = None
    declared: tuple[str, ...] | None = None
    """The fields of its `output_format`, if it has one."""
    error: str = ""


class Reference(Struct, frozen=True, kw_only=True):
    """A value that a text refers to: exactly one of the three."""

    input: str | None = None
    node: str | None = None
    name: str | None = None
    """A variable of the run."""
    field: str | None = None
    is_previous: bool = False
    """The node's output in the previous iteration of the group."""


class Atom(Struct, frozen=True, kw_only=True):
    reference: Reference
    operator: Operator
    expected: str


def find_references(text: str) -> Iterator[tuple[int, int, Reference]]:
    """The references in a text, with their positions. A variable that is none of the run's is text
    for the shell or the model."""
    for match in _REFERENCE.finditer(text):
        if match["name"] is not None and match["name"] not in VARIABLES:
            continue
        yield (
            match.start(),
            match.end(),
            Reference(
                input=match["input"],
                node=match["node"],
                name=match["name"],
                field=match["field"],
                is_previous=match["prev"] is not None,
            ),
        )


def fill_text(text: str, value_of: Callable[[Reference], object]) -> str:
    """A prompt or message with its values. Values are not searched for references again."""
    pieces: list[str] = []
    position = 0
    for start, end, reference in find_references(text):
        pieces += (text[position:start], value_text(value_of(reference)))
        position = end
    return "".join((*pieces, text[position:]))


def value_text(value: object) -> str:
    """A value as text: strings as they are, everything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def whole_reference(text: str) -> Reference | None:
    """The reference that a text consists of, if it is nothing else."""
    stripped = text.strip()
    if match := _WHOLE_INPUT.fullmatch(stripped):
        return Reference(input=match[1])
    if (match := _WHOLE_OUTPUT.fullmatch(stripped)) and match[1] != "INPUTS":
        return Reference(node=match[1], field=match[2])
    return None


def output_value(node_id: str, output: NodeOutput | None, field: str | None) -> object:
    """The value that `$node.output` or `$node.output.field` stands for.

    Raises: InvalidInput: the node failed, or has no such field.
    """
    name = f"${node_id}.output" + (f".{field}" if field else "")
    if output is not None and output.status == "failed":
        raise InvalidInput(f"{name}: {node_id} failed ({output.error}); guard it with a condition")
    if field is None:
        return "" if output is None else output.text
    if output is None or output.status != "completed":
        raise InvalidInput(f"{name}: {node_id} did not run; guard the reference with `when`")
    return _field_value(name, output, field)


def _field_value(name: str, output: NodeOutput, field: str) -> object:
    if output.declared is not None and field not in output.declared:
        raise InvalidInput(f"{name}: the output_format has no field {field}")
    fields = as_object(output.structured) or parse_object(output.text)
    if fields is None:
        raise InvalidInput(f"{name}: the output is not a JSON object")
    if field not in fields and output.declared is None and output.structured is None:
        raise InvalidInput(f"{name}: the output has no field {field}")
    return fields.get(field)


def parse_object(text: str) -> dict[str, object] | None:
    """The JSON object in a text, which may be in a code fence."""
    return as_object(parse_json(text))


def parse_json(text: str) -> object:
    """The JSON in a text, which may be in a code fence; `None` if there is none."""
    fenced = _FENCED.match(text)
    for candidate in (text, *([fenced[1]] if fenced else ())):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return None


def split_condition(text: str) -> list[list[str]]:
    """The alternatives of a condition, each a list of comparisons that must all hold."""
    return [_split(clause, "&&") for clause in _split(text.strip(), "||")]


def _split(text: str, separator: str) -> list[str]:
    parts, start, quoted, position = list[str](), 0, False, 0
    while position < len(text):
        if text[position] == "'":
            quoted = not quoted
        elif not quoted and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            position += len(separator)
            start = position
            continue
        position += 1
    return [*parts, text[start:].strip()]


def parse_atom(text: str) -> Atom | None:
    """A comparison; `None` if it is not one."""
    match = _ATOM.fullmatch(text.strip())
    if match is None:
        return None
    expected = match["quoted"] if match["quoted"] is not None else match["plain"]
    if match["input"] is not None:
        reference = Reference(input=match["input"])
    elif match["node"] == "INPUTS":
        return None
    elif match["first"] == "output":
        reference = Reference(node=match["node"], field=match["second"])
    elif match["second"] is not None:
        return None
    else:
        reference = Reference(node=match["node"], field=match["first"])
    operator: Operator = match["operator"]  # pyright: ignore[reportAssignmentType] (the pattern)
    return Atom(reference=reference, operator=operator, expected=expected)


def condition_problem(text: str) -> str | None:
    """Why a condition can never hold."""
    for atoms in split_condition(text):
        for atom in atoms:
            if (parsed := parse_atom(atom)) is None:
                return f"{atom!r} is not a comparison such as $node.output.field == 'value'"
            if parsed.operator in ("<", ">", "<=", ">=") and _number(parsed.expected) is None:
                return f"{atom!r} compares with {parsed.expected!r}, which is not a number"
    return None


def condition_holds(text: str, value_of: Callable[[Reference], object]) -> bool:
    """Whether a condition holds. A comparison that cannot be read makes it false.

    Raises: InvalidInput: a reference has no value.
    """
    for atoms in split_condition(text):
        for atom_text in atoms:
            atom = parse_atom(atom_text)
            result = None if atom is None else _compare(atom, value_text(value_of(atom.reference)))
            if result is None:
                return False
            if not result:
                break
        else:
            return True
    return False


def _compare(atom: Atom, actual: str) -> bool | None:
    if atom.operator == "==":
        return actual == atom.expected
    if atom.operator == "!=":
        return actual != atom.expected
    left, right = _number(actual), _number(atom.expected)
    if left is None or right is None:
        return None
    comparisons: Mapping[str, bool] = {
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
    }
    return comparisons[atom.operator]


def _number(text: str) -> float | None:
    """The number that a text begins with, as JavaScript's parseFloat reads it."""
    match = _NUMBER.match(text)
    number = None if match is None else float(match[1])
    return None if number is None or not math.isfinite(number) else number
