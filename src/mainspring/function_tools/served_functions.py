"""Functions that an MCP server offers besides tools: resources and prompts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast, overload
from urllib.parse import unquote

from mainspring.core.errors import InvalidInput
from mainspring.function_tools.results import call_function
from mainspring.function_tools.tool_inputs import InvalidInputs, ToolInputs, read_signature

_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResource:
    uri: str
    """With `{name}` for each parameter of the function."""
    name: str
    description: str
    mime_type: str
    inputs: ToolInputs
    function: Callable[..., object]

    @property
    def is_template(self) -> bool:
        return bool(self.inputs.fields)

    def arguments(self, uri: str) -> dict[str, object] | None:
        """The values of the parameters in a URI; `None` if the URI does not match."""
        parts = _VARIABLE.split(self.uri)
        pattern = "".join(
            rf"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)
        )
        match = re.fullmatch(pattern, uri)
        if match is None:
            return None
        return {name: unquote(text) for name, text in match.groupdict().items()}

    async def read(self, arguments: Mapping[str, object]) -> object:
        """The result of the function: text, bytes, or a value that is encoded as JSON.

        Raises: InvalidInput: an argument has the wrong type; and anything the function raises.
        """
        return await _call(self.function, self.inputs, arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrompt:
    name: str
    description: str
    inputs: ToolInputs
    function: Callable[..., object]

    async def messages(self, arguments: Mapping[str, object]) -> list[str]:
        """The messages of the prompt. Raises: as `FunctionResource.read`."""
        result = await _call(self.function, self.inputs, arguments)
        parts = cast("list[object]", result) if isinstance(result, list | tuple) else [result]
        return [str(part) for part in parts]


def resource(
    uri: str, *, name: str | None = None, mime_type: str = "text/plain"
) -> Callable[[Callable[..., object]], FunctionResource]:
    """Make a resource of a function: `@resource("notes://{name}")`.

    Raises:
        InvalidInput: the URI and the parameters do not agree; it says how.
    """

    def define(function: Callable[..., object]) -> FunctionResource:
        own = name or str(getattr(function, "__name__", ""))
        inputs, description = _signature("resource", own, function)
        variables = _VARIABLE.findall(uri)
        if sorted(variables) != sorted(inputs.fields) or len(set(variables)) != len(variables):
            raise InvalidInput(
                f"resource {own}: {uri} must have each parameter of the function once, in braces"
            )
        if "://" not in uri:
            raise InvalidInput(f"resource {own}: {uri!r} is not a URI; write it like notes://x")
        return FunctionResource(
            uri=uri,
            name=own,
            description=description,
            mime_type=mime_type,
            inputs=inputs,
            function=function,
        )

    return define


@overload
def prompt(function: Callable[..., object], /, *, name: str | None = None) -> FunctionPrompt: ...
@overload
def prompt(*, name: str | None = None) -> Callable[[Callable[..., object]], FunctionPrompt]: ...
def prompt(
    function: Callable[..., object] | None = None, /, *, name: str | None = None
) -> FunctionPrompt | Callable[[Callable[..., object]], FunctionPrompt]:
    """Make a prompt of a function that returns the text, or a list of texts: `@prompt`."""

    def define(function: Callable[..., object]) -> FunctionPrompt:
        own = name or str(getattr(function, "__name__", ""))
        inputs, description = _signature("prompt", own, function)
        return FunctionPrompt(name=own, description=description, inputs=inputs, function=function)

    return define if function is None else define(function)


def _signature(kind: str, name: str, function: Callable[..., object]) -> tuple[ToolInputs, str]:
    try:
        inputs, doc = read_signature(function)
    except InvalidInput as error:
        raise InvalidInput(f"{kind} {name}: {error}") from error
    if inputs.call_parameter is not None:
        raise InvalidInput(f"{kind} {name}: only a tool can have a parameter of the type Call")
    if isinstance(inputs.read(dict.fromkeys(inputs.fields, "")), InvalidInputs):
        raise InvalidInput(f"{kind} {name}: all parameters must be str, since clients send text")
    return inputs, doc.summary


async def _call(
    function: Callable[..., object], inputs: ToolInputs, arguments: Mapping[str, object]
) -> object:
    values = inputs.read(arguments)
    if isinstance(values, InvalidInputs):
        raise InvalidInput(values.text)
    return await call_function(function, values)
