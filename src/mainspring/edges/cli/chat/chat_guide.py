"""`/guide` in chat: asks the guide a question, in a separate session."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from anyio import to_thread

from mainspring import __version__
from mainspring.capabilities.tools.html_text import html_to_text
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.sender import Origin
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.run.run_command import print_end, run_attended
from mainspring.edges.cli.run.session_runner import SessionRunner, UserLeft, print_status
from mainspring.edges.cli.run.terminal_input import Keyboard
from mainspring.runtime.agent import Agent
from mainspring.runtime.guide import documentation_folder, guide_agent
from mainspring.runtime.knowledge.knowledge_folder import KnowledgeFolder
from mainspring.runtime.knowledge.knowledge_tool import knowledge_tool
from mainspring.runtime.memory.search.memory_index import open_passages
from mainspring.wiring.agent_selection import validate

_PACKAGE = Path(__file__).parents[3]
_MAX_LISTED = 20  # items of a part of the agent's folder, and problems


async def ask_guide(
    settings: Settings,
    runner: SessionRunner,
    keyboard: Keyboard,
    agent: Agent,
    folder: Path,
    question: str,
) -> None:
    """Raises: InvalidInput: there is no question, or this installation has no documentation."""
    if not question:
        raise InvalidInput("ask a question: /guide How do I always allow a command?")
    documents = _documents(settings)
    setup = await to_thread.run_sync(lambda: list(_setup(settings, agent, folder)))
    guide = guide_agent(agent, knowledge_tool(documents), setup)
    origin = Origin(type="command", id="guide")
    title = f"guide: {question}"[:100]
    session = await runner.runtime.start(guide, title=title, origin=origin)
    receipt = await session.send(question)
    result = await run_attended(
        settings, session, own={receipt.event_id}, notices=runner.notices, keyboard=keyboard
    )
    if result is not None and not isinstance(result, UserLeft):
        notes = Screen(settings, stderr=True)
        await print_end(notes, session, result)
        print_status(notes, result)


def _documents(settings: Settings) -> KnowledgeFolder:
    if (root := documentation_folder(_PACKAGE)) is None:
        raise InvalidInput("this installation has no documentation: install the wheel")
    name = hashlib.sha256(str(root).encode()).hexdigest()[:24]
    index = Path(settings.home) / ".mainspring/memory-index" / f"guide-{name}.db"
    return KnowledgeFolder(root, lambda: open_passages(index, None), html_to_text)


def _setup(settings: Settings, agent: Agent, folder: Path) -> Iterator[str]:
    """Describe this set-up and its problems. Contains names of keys, never their values."""
    yield f"Mainspring {__version__} on {sys.platform}, in a chat in {folder}"
    yield f"agent {agent.name}, model {agent.model}"
    yield f"keys that are set: {', '.join(sorted(settings.keys)) or 'none'}"
    report = validate(settings, str(folder))
    for part in report.parts:
        if part.supported:
            yield f"{part.name}: {'; '.join(part.supported[:_MAX_LISTED])}"
    for finding in report.problems[:_MAX_LISTED]:
        yield f"{finding.level} in {finding.file}: {finding.what}"
