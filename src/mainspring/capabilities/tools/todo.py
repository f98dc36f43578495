"""The todo tool: the list of what is to be done, kept in the log as a whole each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from mainspring.core.content import TextBlock
from mainspring.core.events import Todo, TodosWritten
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import filtered

_MAX_TODOS = 100
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


def todo() -> Tool:
    # It changes nothing but the log's own record, and writing the same list twice is writing it
    # once; two lists of one turn must not overtake each other, so it is not concurrent.
    @tool(read_only=True, in_doubt="retry")
    async def todo(todos: list[Todo]) -> ToolResult:
        """Keep a list of what is to be done in a task of several steps. Each call replaces the
        whole list. Have exactly one item in progress while you work on it, and mark it completed
        as soon as it is.

        Args:
            todos: All items, in order, each with its content and status.
        """
        text = TextBlock(_render_todos(todos))
        return ToolResult((text,), facts=(TodosWritten(todos=tuple(todos)),))

    return filtered(todo, _refusal)


def _refusal(given: Mapping[str, object]) -> str | None:
    items = cast("Sequence[Mapping[str, object]]", given["todos"])
    if len(items) > _MAX_TODOS:
        return f"The input is not valid:\n- todos: at most {_MAX_TODOS}, not {len(items)}"
    if blank := [at for at, item in enumerate(items) if not str(item["content"]).strip()]:
        return f"The input is not valid:\n- todos[{blank[0]}].content: empty"
    active = [at for at, item in enumerate(items) if item["status"] == "in_progress"]
    if len(active) > 1:
        found = ", ".join(f"todos[{at}]" for at in active)
        return f"The input is not valid:\n- todos: one item at most is in_progress, not {found}"
    return None


def _render_todos(todos: Sequence[Todo]) -> str:
    if not todos:
        return "The list is empty."
    done = sum(item.status == "completed" for item in todos)
    lines = [f"{_MARKS[item.status]} {item.content}" for item in todos]
    return "\n".join([f"{done} of {len(todos)} done:", *lines])
