"""The features that a server offers to one caller: tools, resources, prompts, completions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from mainspring.capabilities.mcp.protocol.messages import (
    INVALID_PARAMS,
    Content,
    Prompt,
    PromptResult,
    Resource,
    ResourceContent,
    ResourceTemplate,
    SkillEntry,
    Text,
    ToolDefinition,
)
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.refusals import RequestRefused


class ToolReply(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The result of a tool call, as the server encodes it."""

    content: list[Content]
    structured_content: dict[str, object] | None = None
    is_error: bool = False

    @classmethod
    def text(cls, text: str, *, is_error: bool = False) -> ToolReply:
        return cls(content=[Text(text)], is_error=is_error)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Asks for possible values of an argument. `target` is the name of a prompt, or a URI
    template."""

    target: str
    is_prompt: bool
    argument: str
    value: str
    """The text typed so far."""
    others: Mapping[str, str]
    """Arguments that already have a value."""


class Features(Protocol):
    """The features for one caller; those that it may not use do not exist for it."""

    @property
    def capabilities(self) -> Mapping[str, Mapping[str, object]]:
        """By the protocol's names: `tools`, `resources`, `prompts`, `completions`, `logging`.
        Methods of a capability that is not listed do not exist."""
        ...

    @property
    def changes(self) -> FeatureChangeFeed: ...

    async def tools(self) -> Sequence[ToolDefinition]: ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, object], exchange: Exchange
    ) -> ToolReply:
        """Raises: RequestRefused: there is no such tool."""
        ...

    async def resources(self) -> Sequence[Resource]: ...

    async def resource_templates(self) -> Sequence[ResourceTemplate]: ...

    async def read_resource(self, uri: str, exchange: Exchange) -> Sequence[ResourceContent]:
        """Raises: RequestRefused: there is no such resource; see `no_resource`."""
        ...

    async def skills(self) -> Sequence[SkillEntry]:
        """The published skills. Called only if the capabilities name the extension for skills."""
        ...

    async def prompts(self) -> Sequence[Prompt]: ...

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], exchange: Exchange
    ) -> PromptResult:
        """Raises: RequestRefused: there is no such prompt, or an argument is missing."""
        ...

    async def complete(self, request: CompletionRequest) -> Sequence[str]: ...


def no_tool(name: str) -> RequestRefused:
    return RequestRefused(f"there is no tool {name!r:.200}", code=INVALID_PARAMS)


def no_prompt(name: str) -> RequestRefused:
    return RequestRefused(f"there is no prompt {name!r:.200}", code=INVALID_PARAMS)


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """A change that clients may have subscribed to: of a list, or of one resource."""

    method: str
    uri: str | None = None


TOOLS_CHANGED = FeatureChange("notifications/tools/list_changed")
PROMPTS_CHANGED = FeatureChange("notifications/prompts/list_changed")
RESOURCES_CHANGED = FeatureChange("notifications/resources/list_changed")


@dataclass(slots=True)
class FeatureChangeFeed:
    """Passes changes to all listeners, which must not block."""

    _listeners: list[Callable[[FeatureChange], None]] = field(
        default_factory=list[Callable[[FeatureChange], None]]
    )

    def announce(self, change: FeatureChange) -> None:
        for listener in list(self._listeners):
            listener(change)

    @contextmanager
    def listening(self, listener: Callable[[FeatureChange], None]) -> Generator[None]:
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
