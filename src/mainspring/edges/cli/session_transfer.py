"""What `mainspring sessions pull` and `push` do."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.event_summary import short_id
from mainspring.edges.cli.printing import Screen
from mainspring.edges.cli.pull_client import pull_session
from mainspring.edges.cli.push_client import PushOptions, push_session
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.wiring.stores import open_log

_MAX_SHOWN = 20


async def pull(
    settings: Settings, *, url: str, session_id: str, into: str | None, json: bool
) -> int:
    wanted = Path(settings.folder) / (into or session_id)
    async with open_log(settings) as log:
        pulled = await pull_session(settings, log, url=url, session_id=session_id, into=wanted)
    if json:
        Screen(settings).json(msgspec.json.encode(pulled))
        return 0
    place = pulled.workspace
    Screen(settings).line(("moved here ", "green"), (session_id, ""), (f"  {place}", "dim"))
    for path in pulled.left_out[:_MAX_SHOWN]:
        Screen(settings, stderr=True).paragraph((f"stayed behind: {path}", "dim"))
    if (more := len(pulled.left_out) - _MAX_SHOWN) > 0:
        Screen(settings, stderr=True).paragraph((f"and {more} more", "dim"))
    hint = f"go on: mainspring run --resume {short_id(session_id)} 'what to do'"
    Screen(settings, stderr=True).paragraph((hint, "dim"))
    return 0


async def push(
    settings: Settings,
    *,
    url: str,
    meant: str,
    place: tuple[str | None, str | None],
    workspace: str | None,
    json: bool,
) -> int:
    """`place`: the agent and the environment that go on with it there."""
    agent, environment = place
    async with open_existing_log(settings) as log:
        session = await find_session(log, meant)
        options = PushOptions(
            url=url,
            session_id=session.id,
            agent=agent,
            environment=environment,
            workspace=None if workspace is None else Path(settings.folder) / workspace,
        )
        received = await push_session(settings, log, options)
    if json:
        Screen(settings).json(msgspec.json.encode({"id": session.id, "received_as": received}))
        return 0
    Screen(settings).line(("moved ", "green"), (session.id, ""), (f"  to {url}", "dim"))
    Screen(settings).line(("there it is ", "green"), (received, ""))
    return 0
