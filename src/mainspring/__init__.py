"""Mainspring's public API, with `mainspring.tools`, `.hooks`, `.events` and `.testing`; everything
else is internal. Names are imported when first used."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.core.content import Block, DocumentBlock, ImageBlock, TextBlock
    from mainspring.core.envelope import Event
    from mainspring.core.errors import (
        InvalidInput,
        LogError,
        MainspringError,
        OutputMissing,
        ProviderFailed,
        StoreFailed,
    )
    from mainspring.core.model import Delta, TextDelta
    from mainspring.core.tool import Call, Tool, ToolResult
    from mainspring.function_tools.define import tool
    from mainspring.function_tools.results import ToolError
    from mainspring.harness.budget import Budget
    from mainspring.harness.limits import Limits
    from mainspring.log.session_log import SessionLog
    from mainspring.runtime.agent import Agent
    from mainspring.runtime.session.event_stream import EventStream, PartialOutput, StreamEvent
    from mainspring.runtime.session.run_result import ApprovalRequest, RunResult
    from mainspring.runtime.session.session import Runtime, Session
    from mainspring.runtime.workflows.project_workflows import ProjectWorkflows
    from mainspring.runtime.workflows.run_view import RunView
    from mainspring.wiring.evolution_assembly import aevolve, evolve
    from mainspring.wiring.runtime_assembly import arun, open_runtime, run
    from mainspring.wiring.workflow_steps import open_workflows

_HOMES = {
    "mainspring.core.content": "Block DocumentBlock ImageBlock TextBlock",
    "mainspring.core.envelope": "Event",
    "mainspring.core.errors": (
        "InvalidInput LogError MainspringError OutputMissing ProviderFailed StoreFailed"
    ),
    "mainspring.core.model": "Delta TextDelta",
    "mainspring.core.tool": "Call Tool ToolResult",
    "mainspring.function_tools.define": "tool",
    "mainspring.function_tools.results": "ToolError",
    "mainspring.harness.budget": "Budget",
    "mainspring.harness.limits": "Limits",
    "mainspring.log.session_log": "SessionLog",
    "mainspring.runtime.agent": "Agent",
    "mainspring.runtime.session.event_stream": "EventStream PartialOutput StreamEvent",
    "mainspring.runtime.session.run_result": "ApprovalRequest RunResult",
    "mainspring.runtime.session.session": "Runtime Session",
    "mainspring.runtime.workflows.project_workflows": "ProjectWorkflows",
    "mainspring.runtime.workflows.run_view": "RunView",
    "mainspring.wiring.evolution_assembly": "aevolve evolve",
    "mainspring.wiring.runtime_assembly": "arun open_runtime run",
    "mainspring.wiring.workflow_steps": "open_workflows",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "ApprovalRequest",
    "Block",
    "Budget",
    "Call",
    "Delta",
    "DocumentBlock",
    "Event",
    "EventStream",
    "ImageBlock",
    "InvalidInput",
    "Limits",
    "LogError",
    "MainspringError",
    "OutputMissing",
    "PartialOutput",
    "ProjectWorkflows",
    "ProviderFailed",
    "RunResult",
    "RunView",
    "Runtime",
    "Session",
    "SessionLog",
    "StoreFailed",
    "StreamEvent",
    "TextBlock",
    "TextDelta",
    "Tool",
    "ToolError",
    "ToolResult",
    "aevolve",
    "arun",
    "evolve",
    "open_runtime",
    "open_workflows",
    "run",
    "tool",
]

_TESTING = "mainspring.testing"
_HOOKS = "mainspring.hooks"
_DEPRECATED = {
    **dict.fromkeys(("Model", "Reply", "Request"), _TESTING),
    **dict.fromkeys(("Scripted", "calls", "fails", "says", "thinks"), _TESTING),
    **dict.fromkeys(("AllowAll", "Authorizer", "Continue", "Decision", "Ended"), _HOOKS),
    **dict.fromkeys(("ToolSpec", "Traits"), "mainspring.tools"),
}
"""Names that have moved, with the module that has them now. The next release removes them here."""
_RENAMED = {"Result": "RunResult"}


def __getattr__(name: str) -> object:
    if new_name := _RENAMED.get(name):
        _warn(name, f"mainspring.{new_name}")
        return __getattr__(new_name)
    if home := _DEPRECATED.get(name):
        _warn(name, f"{home}.{name}")
        return getattr(import_module(home), name)
    if home := _HOME_OF.get(name):
        value = getattr(import_module(home), name)
        if name == "Agent":
            value.folder_reader = _read_folder
        globals()[name] = value
        return value
    raise AttributeError(f"mainspring has no public name {name!r}")


def _read_folder(folder: "Path") -> "Agent[str]":
    return import_module("mainspring.wiring.agent_selection").load_agent(folder)


def _warn(name: str, new_name: str) -> None:
    warnings.warn(f"mainspring.{name} is now {new_name}", DeprecationWarning, stacklevel=3)
