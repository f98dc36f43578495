"""Mainspring's public API; everything else is internal. Names are imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says, thinks
    from mainspring.capabilities.tools.define import tool
    from mainspring.capabilities.tools.results import ToolError
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
    from mainspring.core.tool import Call, Outcome, Tool, Traits
    from mainspring.harness.budget import Purse
    from mainspring.harness.gates import Decision, Gates, OpenGates
    from mainspring.harness.limits import Limits
    from mainspring.harness.reasons import Continue, Ended
    from mainspring.log.session_log import SessionLog
    from mainspring.runtime.agent import Agent
    from mainspring.runtime.sessions import Result, Runtime, Session
    from mainspring.wiring.runtime import open_runtime, run

_HOMES = {
    "mainspring.capabilities.providers.scripted": "Scripted calls fails says thinks",
    "mainspring.capabilities.tools.define": "tool",
    "mainspring.capabilities.tools.results": "ToolError",
    "mainspring.core.content": "Block DocumentBlock ImageBlock TextBlock",
    "mainspring.core.envelope": "Event",
    "mainspring.core.errors": "InvalidInput LogError MainspringError ProviderFailed StoreFailed",
    "mainspring.core.model": "Delta Model Reply Request ToolSpec",
    "mainspring.core.tool": "Call Outcome Tool Traits",
    "mainspring.harness.budget": "Purse",
    "mainspring.harness.gates": "Decision Gates OpenGates",
    "mainspring.harness.limits": "Limits",
    "mainspring.harness.reasons": "Continue Ended",
    "mainspring.log.session_log": "SessionLog",
    "mainspring.runtime.agent": "Agent",
    "mainspring.runtime.sessions": "Result Runtime Session",
    "mainspring.wiring.runtime": "open_runtime run",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "Block",
    "Call",
    "Continue",
    "Decision",
    "Delta",
    "DocumentBlock",
    "Ended",
    "Event",
    "Gates",
    "ImageBlock",
    "InvalidInput",
    "Limits",
    "LogError",
    "MainspringError",
    "Model",
    "OpenGates",
    "Outcome",
    "ProviderFailed",
    "Purse",
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


def __getattr__(name: str) -> object:
    if home := _HOME_OF.get(name):
        found = getattr(import_module(home), name)
        globals()[name] = found
        return found
    raise AttributeError(f"mainspring has no public name {name!r}")
