"""Public: what tools are made of, wrappers around them, and tools of other libraries."""

from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.adapters import from_langchain, from_openai
from mainspring.function_tools.define import FunctionTool, tool
from mainspring.function_tools.results import ToolError
from mainspring.function_tools.wrap import (
    filtered,
    renamed,
    with_approval,
    with_fallback,
    with_timeout,
)

__all__ = [
    "Call",
    "FunctionTool",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Traits",
    "filtered",
    "from_langchain",
    "from_openai",
    "renamed",
    "tool",
    "with_approval",
    "with_fallback",
    "with_timeout",
]
