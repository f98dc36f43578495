"""The think tool lets the model reason before acting. It has no effect."""

from __future__ import annotations

from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool


def think() -> Tool:
    @tool(read_only=True, concurrent=True)
    async def think(thought: str) -> str:
        """Write down a thought before you act: what you know, what is missing, which way is best.
        It has no effect and returns nothing new.

        Args:
            thought: Your thought.
        """
        return "Noted."

    return think
