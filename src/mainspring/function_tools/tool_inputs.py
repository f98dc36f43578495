"""The input of a function that is a tool: the schema and descriptions for the model, from type
hints and docstring, and parsing of the model's input.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import FunctionType
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.tool import Call
from mainspring.function_tools.input_types import (
    Field,
    convert_strictly,
    encode_model,
    field_mismatches,
    json_schemas,
    type_mismatches,
)
from mainspring.log.lru_cache import LruCache

_PARAMETER_SECTIONS = frozenset(("Args:", "Arguments:", "Parameters:", "Params:"))
_OTHER_SECTION = re.compile(
    r"(Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?|Todo):"
)
_ENTRY = re.compile(
    r"(?:[-*] )?(?::param (?:\w+ )?)?[`*]{0,2}(\w+)[`*]{0,2}"  # the name
    r"(?: ?\([^)]*\))? ?(?::|-{1,2} |[–—]) ?(.*)"  # perhaps a type, then the description
)


class Docstring(Struct, frozen=True):
    summary: str
    """The first paragraph, on one line."""
    parameters: Mapping[str, str]


def read_docstring(text: str, parameters: Collection[str]) -> Docstring:
    """Parse a docstring with Google's `Args:`, `:param name:` or plain `name: text`."""
    lines = inspect.cleandoc(text).splitlines()
    end = next((at for at, line in enumerate(lines) if _ends_summary(line)), len(lines))
    summary = " ".join(line.strip() for line in lines[:end])
    return Docstring(summary, _parameter_descriptions(lines[end:], parameters))


def _ends_summary(line: str) -> bool:
    bare = line.strip()
    return not bare or _is_section(bare) or bare.startswith(":param ")


def _is_section(line: str) -> bool:
    return line in _PARAMETER_SECTIONS or _OTHER_SECTION.fullmatch(line) is not None


def _parameter_descriptions(lines: Iterable[str], parameters: Collection[str]) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    current, indent, is_about_parameters = "", 0, True
    for line in lines:
        bare = line.strip()
        if _is_section(bare):
            current, is_about_parameters = "", bare in _PARAMETER_SECTIONS
            continue
        if not is_about_parameters:
            continue
        entry = _ENTRY.fullmatch(bare)
        depth = len(line) - len(line.lstrip())
        if current and bare and depth > indent:
            descriptions[current] = f"{descriptions[current]} {bare}".strip()
        elif entry is not None and entry[1] in parameters and entry[1] not in descriptions:
            current, indent = entry[1], depth
            descriptions[current] = entry[2].strip()
        else:
            current = ""
    return {name: description for name, description in descriptions.items() if description}


_MAX_PROBLEMS = 20  # told to the model at once
_OURS = "mainspring."


class InvalidInputs(Struct, frozen=True):
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = [f"- {problem}" for problem in self.problems[:_MAX_PROBLEMS]]
        more = len(self.problems) - _MAX_PROBLEMS
        remainder = [f"- and {more} more"] if more > 0 else []
        return "\n".join(["The input is not valid:", *lines, *remainder])


class ToolInputs(Struct, frozen=True, kw_only=True):
    fields: Mapping[str, Field]
    schema: dict[str, object]
    call_parameter: str | None
    """The parameter that receives the call itself; the model does not see it."""
    deps_type: object = object
    """The required type of `deps` of that call."""

    def read(self, args: Mapping[str, object]) -> dict[str, object] | InvalidInputs:
        """The arguments by name; for missing ones, the function's own defaults apply."""
        try:
            hints = self.fields
            arguments = {name: convert_strictly(args[name], hints[name].hint) for name in args}
        except (KeyError, msgspec.ValidationError):
            return InvalidInputs(self._problems(args))
        is_incomplete = any(
            field.required and name not in args for name, field in self.fields.items()
        )
        return InvalidInputs(self._problems(args)) if is_incomplete else arguments

    def _problems(self, args: Mapping[str, object]) -> tuple[str, ...]:
        problem = f"unknown; the fields are: {', '.join(self.fields) or 'none'}"
        unknown = [f"{name}: {problem}" for name in args if name not in self.fields]
        return (*field_mismatches(args, self.fields, ""), *unknown)


_SIGNATURES: LruCache[tuple[object, ...], tuple[ToolInputs, Docstring]] = LruCache(200)


def read_signature(function: Callable[..., object]) -> tuple[ToolInputs, Docstring]:
    """Read a signature. It is cached for our own functions, since built-in tools are created again
    for every thread.

    Raises:
        InvalidInput: the function cannot be called by name with JSON; it says which parameter.
    """
    docstring = inspect.getdoc(function) or ""
    key = _cache_key(function, docstring)
    signature = None if key is None else _SIGNATURES.get(key)
    if signature is None:
        signature = _read_signature(function, docstring)
        if key is not None:
            _SIGNATURES.put(key, signature)
    return signature


def _cache_key(function: Callable[..., object], docstring: str) -> tuple[object, ...] | None:
    """Equal for functions from the same `def` of ours. `None` for other functions, whose type hints
    may refer to names that change."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith(_OURS):
        return None
    defaults = repr((function.__defaults__, function.__kwdefaults__))
    return (function.__module__, function.__code__, docstring, defaults)


def _read_signature(
    function: Callable[..., object], docstring: str
) -> tuple[ToolInputs, Docstring]:
    hints = _hints(function)
    parameters = inspect.signature(function).parameters
    calls = [name for name in parameters if _is_call(hints.get(name))]
    if len(calls) > 1:
        raise InvalidInput(f"only one parameter can be the call, not {', '.join(calls)}")
    visible = [parameter for name, parameter in parameters.items() if name not in calls]
    fields = {parameter.name: _field(parameter, hints) for parameter in visible}
    doc = read_docstring(docstring, fields)
    inputs = ToolInputs(
        fields=fields,
        schema=_schema(fields, visible, doc.parameters),
        call_parameter=calls[0] if calls else None,
        deps_type=_deps_type(hints[calls[0]]) if calls else object,
    )
    return inputs, doc


def _hints(function: Callable[..., object]) -> Mapping[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(f"a type hint names {error.name}, which no module defines") from error


def _is_call(hint: object) -> bool:
    """Whether it is `Call`, `Call[Deps]`, or either with `None` or annotations."""
    if hint is Call or get_origin(hint) is Call:
        return True
    return any(item is Call or get_origin(item) is Call for item in get_args(hint))


def _deps_type(hint: object) -> object:
    """`Deps` of `Call[Deps]`; `object` for a bare `Call`."""
    for item in (hint, *get_args(hint)):
        if get_origin(item) is Call:
            return get_args(item)[0]
    return object


def _field(parameter: inspect.Parameter, hints: Mapping[str, object]) -> Field:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise InvalidInput(f"parameter {name}: a tool takes a fixed list of parameters")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise InvalidInput(
            f"parameter {name}: a tool is called by name, and this one is positional-only"
        )
    if name not in hints:
        raise InvalidInput(f"parameter {name}: a tool needs a type hint for every parameter")
    return Field(hints[name], parameter.default is parameter.empty)


def _schema(
    fields: Mapping[str, Field],
    parameters: list[inspect.Parameter],
    descriptions: Mapping[str, str],
) -> dict[str, object]:
    for name, field in fields.items():
        try:
            json_schemas([field.hint])
        except TypeError as error:
            why = str(error).rpartition("\n")[2]
            raise InvalidInput(f"parameter {name}: its type has no JSON form: {why}") from error
    parts, definitions = json_schemas([field.hint for field in fields.values()])
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


def _description(hint: object, from_docstring: str) -> dict[str, str]:
    """A description in the annotation takes precedence over the docstring."""
    notes: tuple[object, ...] = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    for note in notes:
        text = note.description if isinstance(note, msgspec.Meta) else note
        if isinstance(text, str):
            return {"description": text}
    return {"description": from_docstring} if from_docstring else {}


def _default(field: Field, parameter: inspect.Parameter) -> dict[str, object]:
    if field.required:
        return {}
    try:
        plain = msgspec.to_builtins(parameter.default, str_keys=True, enc_hook=encode_model)
    except TypeError:
        return {}  # a sentinel, which the model cannot write
    return {} if type_mismatches(plain, field.hint, parameter.name) else {"default": plain}
