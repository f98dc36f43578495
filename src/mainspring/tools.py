"""Public: the parts of tools, wrappers around them, adapters for tools of other libraries, and
functions that MCP servers offer."""

from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.adapters import from_langchain, from_mcp, from_openai
from mainspring.function_tools.define import FunctionTool, tool
from mainspring.function_tools.results import ToolError
from mainspring.function_tools.served_functions import (
    FunctionPrompt,
    FunctionResource,
    prompt,
    resource,
)
from mainspring.function_tools.wrap import (
    filtered,
    renamed,
    with_approval,
    with_fallback,
    with_timeout,
)

__all__ = [
    "Call",
    "FunctionPrompt",
    "FunctionResource",
    "FunctionTool",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Traits",
    "filtered",
    "from_langchain",
    "from_mcp",
    "from_openai",
    "prompt",
    "renamed",
    "resource",
    "tool",
    "with_approval",
    "with_fallback",
    "with_timeout",
]
