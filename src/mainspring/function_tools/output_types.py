"""The output type of an agent: the tool with which the model returns a value of it, and reading
that value from the log.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union, cast, get_args, get_origin, is_typeddict

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.core.events import OutputProduced
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.input_types import (
    convert_strictly,
    encode_model,
    is_model_type,
    json_schemas,
    type_mismatches,
)

_WRAPPED = "result"
"""The only field of the input if the output is not a JSON object."""
_ACCEPTED = "Accepted."


@dataclass(frozen=True, slots=True)
class OutputType:
    """A type that the agent's final answer must have."""

    hint: object
    """A type expression, for which Python has no type."""
    others: tuple[object, ...] = ()
    """Alternatives; the first type that matches is used."""

    @property
    def hints(self) -> tuple[object, ...]:
        return (self.hint, *self.others)

    @property
    def is_wrapped(self) -> bool:
        """Whether a value is passed in a field of its own, because it is not a JSON object or has
        alternatives: the input of a tool must be one object."""
        return bool(self.others) or not _is_object(self.hint)

    def read(self, value: object) -> object:
        """The typed value of its JSON form.

        Raises:
            InvalidInput: it is not of the type.
        """
        for hint in self.hints:
            if not type_mismatches(value, hint, ""):
                return convert_strictly(value, hint)
        raise InvalidInput("\n".join(["the output is not of the type:", *self.problems(value)]))

    def problems(self, value: object) -> list[str]:
        """The problems of a value, for each alternative."""
        path = _WRAPPED if self.is_wrapped else ""
        problems = [type_mismatches(value, hint, path) for hint in self.hints]
        if not all(problems):
            return []
        if not self.others:
            return [f"- {problem.lstrip('.')}" for problem in problems[0]]
        return [
            f"- as {getattr(hint, '__name__', hint)}: {problem}"
            for hint, hint_problems in zip(self.hints, problems, strict=True)
            for problem in hint_problems
        ]

    def partial(self, fields: Mapping[str, object]) -> object:
        """The value in a tool input, whose JSON may be incomplete."""
        return fields.get(_WRAPPED) if self.is_wrapped else fields


def output_type_of(hint: object) -> OutputType | None:
    """`None` for text, which needs no tool. Several types are alternatives.

    Raises:
        InvalidInput: the type has no JSON form.
    """
    if hint is str:
        return None
    hints: tuple[object, ...] = (hint,)
    if isinstance(hint, Sequence) and not isinstance(hint, str):
        hints = tuple(cast("Sequence[object]", hint))
    elif get_origin(hint) in (Union, types.UnionType):
        hints = get_args(hint)
    try:
        for item in hints:
            json_schemas([item])
    except TypeError as error:
        why = str(error).rpartition("\n")[2]
        raise InvalidInput(f"the output type has no JSON form: {why}") from error
    if not hints:
        raise InvalidInput("an output type is required: str for text")
    return OutputType(hints[0], hints[1:])


def output_tool(name: str, output: OutputType) -> Tool:
    """The tool that the model calls with its final answer."""

    def invalid(args: Mapping[str, object]) -> str | None:
        problems = _problems(output, args)
        return "\n".join(["The result is not valid:", *problems]) if problems else None

    async def run(call: Call) -> ToolResult:
        value = output.partial(call.input)
        plain = msgspec.to_builtins(output.read(value), str_keys=True, enc_hook=encode_model)
        fact = OutputProduced(tool_use_id=call.id, value=plain)
        return ToolResult((*ToolResult.text(_ACCEPTED).content,), facts=(fact,))

    return Tool(
        spec=ToolSpec(
            name=name,
            description="Give your final answer. Call it once, when you are done.",
            input_schema=_input_schema(output),
        ),
        run=run,
        traits=lambda _: Traits(read_only=True, in_doubt="retry"),
        invalid=invalid,
    )


def _problems(output: OutputType, args: Mapping[str, object]) -> list[str]:
    if output.is_wrapped:
        if unknown := [name for name in args if name != _WRAPPED]:
            return [f"- {unknown[0]}: unknown; the only field is {_WRAPPED}"]
        if _WRAPPED not in args:
            return [f"- {_WRAPPED}: missing"]
    return output.problems(output.partial(args))


def _input_schema(output: OutputType) -> dict[str, object]:
    schemas, definitions = json_schemas(output.hints)
    schema = schemas[0]
    if output.is_wrapped:
        result: object = {"anyOf": schemas} if len(schemas) > 1 else schema
        schema = dict[str, object](
            type="object",
            properties={_WRAPPED: result},
            required=[_WRAPPED],
            additionalProperties=False,
        )
    elif "$ref" in schema:  # the schema of a tool must be an object, not a reference
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        schema = cast("dict[str, object]", definitions[name])
    return {**schema, "$defs": definitions} if definitions else schema


def _is_object(hint: object) -> bool:
    if not isinstance(hint, type):
        origin = get_origin(hint)
        return isinstance(origin, type) and issubclass(origin, Mapping)
    kind = cast("type[object]", hint)
    if issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.array_like
    return hasattr(kind, "__dataclass_fields__") or is_typeddict(kind) or is_model_type(kind)
