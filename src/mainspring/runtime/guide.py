"""The guide: an agent that answers questions about Mainspring from its documentation, for the
user's set-up. No other session has its tools or its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mainspring.core.tool import Tool
from mainspring.runtime.agent import Agent

_INSTRUCTIONS = """\
You are the guide of Mainspring, the program that runs you. You answer questions of its users.
- Search the documentation with knowledge_search before you answer, with other words if the first
  search does not help. Cite the page of each statement in brackets, such as [cli/run.md].
- Say so if the documentation does not cover the question. Do not guess options or file names.
- Apply the answer to the set-up below, which is this user's. You change nothing: show the command
  to run or the file to write.

This user's set-up:
"""


def guide_agent(base: Agent, search: Tool, setup: Sequence[str]) -> Agent:
    """The guide with the model of `base`. `setup`: one line for each fact."""
    lines = "".join(f"- {' '.join(line.split())[:300]}\n" for line in setup)
    return Agent(
        name="guide",
        description="Answers questions about Mainspring and this set-up.",
        instructions=_INSTRUCTIONS + lines,
        model=base.model,
        limits=base.limits,
        effort=base.effort,
        tools=(search,),
    )


def documentation_folder(package: Path) -> Path | None:
    """The documentation in the package, or beside the sources of a checkout."""
    places = (package / "docs", package.parents[1] / "docs")
    return next((place for place in places if (place / "architecture.md").is_file()), None)
