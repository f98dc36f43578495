"""The input of a function that is a tool: its schema for the model, and reading what came."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec

from mainspring.capabilities.tools.docstrings import Docstring, read_docstring
from mainspring.capabilities.tools.foreign import encode_foreign, schemas_of
from mainspring.capabilities.tools.mismatches import Field, converted, field_mismatches, mismatches
from mainspring.core.errors import InvalidInput
from mainspring.core.latest import Latest
from mainspring.core.tool import Call

_MAX_PROBLEMS = 20
_OURS = "mainspring."


@dataclass(frozen=True, slots=True)
class Invalid:
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        shown = [f"- {problem}" for problem in self.problems[:_MAX_PROBLEMS]]
        more = len(self.problems) - _MAX_PROBLEMS
        return "\n".join(
            ["The input is not valid:", *shown, *([f"- and {more} more"] if more > 0 else [])]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    fields: Mapping[str, Field]
    schema: dict[str, object]
    call_parameter: str | None
    """The one that receives the call itself; the model knows nothing of it."""

    def read(self, given: Mapping[str, object]) -> dict[str, object] | Invalid:
        """The arguments by name; what was not given is left to the function's own defaults."""
        try:
            arguments = {name: converted(given[name], self.fields[name].hint) for name in given}
        except (KeyError, msgspec.ValidationError):
            return Invalid(self._problems(given))
        missing = any(field.required and name not in given for name, field in self.fields.items())
        return Invalid(self._problems(given)) if missing else arguments

    def _problems(self, given: Mapping[str, object]) -> tuple[str, ...]:
        known = ", ".join(self.fields) or "none"
        unknown = [
            f"{name}: unknown; the fields are: {known}" for name in given if name not in self.fields
        ]
        return (*field_mismatches(given, self.fields, ""), *unknown)


_KNOWN: Latest[tuple[object, ...], tuple[Inputs, Docstring]] = Latest(200)


def inputs_of(function: Callable[..., object], docstring: str) -> tuple[Inputs, Docstring]:
    """Read a signature. Built-in tools are made anew for every thread, of the same few functions:
    what was read of one is kept.

    Raises:
        InvalidInput: the function cannot be called by name with JSON; it says which parameter.
    """
    mark = _mark(function, docstring)
    known = None if mark is None else _KNOWN.get(mark)
    if known is None:
        known = _read(function, docstring)
        if mark is not None:
            _KNOWN.put(mark, known)
    return known


def _mark(function: Callable[..., object], docstring: str) -> tuple[object, ...] | None:
    """The same for functions that one `def` of ours has made; of others, names may change their
    meaning between two."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith(_OURS):
        return None
    defaults = repr((function.__defaults__, function.__kwdefaults__))
    return (function.__module__, function.__code__, docstring, defaults)


def _read(function: Callable[..., object], docstring: str) -> tuple[Inputs, Docstring]:
    hints = _hints(function)
    parameters = inspect.signature(function).parameters
    calls = [name for name in parameters if _is_call(hints.get(name))]
    if len(calls) > 1:
        raise InvalidInput(f"only one parameter can be the call, not {', '.join(calls)}")
    shown = [parameter for name, parameter in parameters.items() if name not in calls]
    fields = {parameter.name: _field(parameter, hints) for parameter in shown}
    doc = read_docstring(docstring, fields)
    inputs = Inputs(
        fields=fields,
        schema=_schema(fields, shown, doc.parameters),
        call_parameter=calls[0] if calls else None,
    )
    return inputs, doc


def _hints(function: Callable[..., object]) -> Mapping[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(f"a type hint names {error.name}, which no module defines") from error


def _is_call(hint: object) -> bool:
    return hint is Call or Call in get_args(hint)


def _field(parameter: inspect.Parameter, hints: Mapping[str, object]) -> Field:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise InvalidInput(f"parameter {name}: a tool takes a fixed list of parameters")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise InvalidInput(f"parameter {name}: a tool is called by name, this one cannot be")
    if name not in hints:
        raise InvalidInput(f"parameter {name}: a tool needs a type hint for every parameter")
    return Field(hints[name], parameter.default is parameter.empty)


def _schema(
    fields: Mapping[str, Field],
    parameters: list[inspect.Parameter],
    descriptions: Mapping[str, str],
) -> dict[str, object]:
    for name, field in fields.items():
        _check_hint(name, field.hint)
    parts, definitions = schemas_of([field.hint for field in fields.values()])
    properties = {
        parameter.name: {
            **part,
            **_description(fields[parameter.name].hint, descriptions.get(parameter.name, "")),
            **_default(fields[parameter.name], parameter),
        }
        for parameter, part in zip(parameters, parts, strict=True)
    }
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": [name for name, field in fields.items() if field.required],
        "additionalProperties": False,
    }
    return {**schema, "$defs": definitions} if definitions else schema


def _check_hint(name: str, hint: object) -> None:
    try:
        schemas_of([hint])
    except TypeError as error:
        why = str(error).rpartition("\n")[2]
        raise InvalidInput(f"parameter {name}: its type has no JSON form: {why}") from error


def _description(hint: object, described: str) -> dict[str, str]:
    """What stands at the parameter itself goes before the docstring."""
    notes: tuple[object, ...] = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    for note in notes:
        written = note.description if isinstance(note, msgspec.Meta) else note
        if isinstance(written, str):
            return {"description": written}
    return {"description": described} if described else {}


def _default(field: Field, parameter: inspect.Parameter) -> dict[str, object]:
    if field.required:
        return {}
    try:
        plain = msgspec.to_builtins(parameter.default, str_keys=True, enc_hook=encode_foreign)
    except TypeError:
        return {}  # a sentinel: the model can leave the parameter out, and cannot write it
    return {} if mismatches(plain, field.hint, parameter.name) else {"default": plain}
