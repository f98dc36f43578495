"""Mainspring's public API; everything else is internal. Names are imported when first used."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says, thinks
    from mainspring.core.content import Block, DocumentBlock, ImageBlock, TextBlock
    from mainspring.core.envelope import Event
    from mainspring.core.errors import (
        InvalidInput,
        LogError,
        MainspringError,
        ProviderFailed,
        StoreFailed,
    )
    from mainspring.core.model import Delta, Model, Reply, Request, ToolSpec
    from mainspring.core.tool import Call, Tool, ToolResult, Traits
    from mainspring.function_tools.define import tool
    from mainspring.function_tools.results import ToolError
    from mainspring.harness.authorizer import AllowAll, Authorizer, Decision
    from mainspring.harness.budget import Budget
    from mainspring.harness.limits import Limits
    from mainspring.harness.stop_reasons import Continue, Ended
    from mainspring.log.session_log import SessionLog
    from mainspring.runtime.agent import Agent
    from mainspring.runtime.session.session import Result, Runtime, Session
    from mainspring.wiring.runtime_assembly import open_runtime, run

_HOMES = {
    "mainspring.capabilities.providers.scripted": "Scripted calls fails says thinks",
    "mainspring.function_tools.define": "tool",
    "mainspring.function_tools.results": "ToolError",
    "mainspring.core.content": "Block DocumentBlock ImageBlock TextBlock",
    "mainspring.core.envelope": "Event",
    "mainspring.core.errors": "InvalidInput LogError MainspringError ProviderFailed StoreFailed",
    "mainspring.core.model": "Delta Model Reply Request ToolSpec",
    "mainspring.core.tool": "Call ToolResult Tool Traits",
    "mainspring.harness.budget": "Budget",
    "mainspring.harness.authorizer": "Decision Authorizer AllowAll",
    "mainspring.harness.limits": "Limits",
    "mainspring.harness.stop_reasons": "Continue Ended",
    "mainspring.log.session_log": "SessionLog",
    "mainspring.runtime.agent": "Agent",
    "mainspring.runtime.session.session": "Result Runtime Session",
    "mainspring.wiring.runtime_assembly": "open_runtime run",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "AllowAll",
    "Authorizer",
    "Block",
    "Budget",
    "Call",
    "Continue",
    "Decision",
    "Delta",
    "DocumentBlock",
    "Ended",
    "Event",
    "ImageBlock",
    "InvalidInput",
    "Limits",
    "LogError",
    "MainspringError",
    "Model",
    "ProviderFailed",
    "Reply",
    "Request",
    "Result",
    "Runtime",
    "Scripted",
    "Session",
    "SessionLog",
    "StoreFailed",
    "TextBlock",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Traits",
    "calls",
    "fails",
    "open_runtime",
    "run",
    "says",
    "thinks",
    "tool",
]


_DEPRECATED = {
    "Gates": "Authorizer",
    "OpenGates": "AllowAll",
    "Outcome": "ToolResult",
    "Purse": "Budget",
}
"""Old names, which the next release removes."""


def __getattr__(name: str) -> object:
    if new_name := _DEPRECATED.get(name):
        text = f"mainspring.{name} is now called mainspring.{new_name}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return __getattr__(new_name)
    if home := _HOME_OF.get(name):
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value
    raise AttributeError(f"mainspring has no public name {name!r}")
