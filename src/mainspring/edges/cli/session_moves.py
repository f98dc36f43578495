"""What `mainspring sessions pull` and `push` do."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.render import Screen
from mainspring.edges.cli.sessions import existing_log, find_session
from mainspring.wiring.moves import pull_session
from mainspring.wiring.push_session import PushOptions, push_session
from mainspring.wiring.stores import open_log

_SHOWN = 20


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
    for path in pulled.left_out[:_SHOWN]:
        Screen(settings, stderr=True).whole((f"stayed behind: {path}", "dim"))
    if (more := len(pulled.left_out) - _SHOWN) > 0:
        Screen(settings, stderr=True).whole((f"and {more} more", "dim"))
    hint = f"go on: mainspring run --resume {short(session_id)} 'what to do'"
    Screen(settings, stderr=True).whole((hint, "dim"))
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
    async with existing_log(settings) as log:
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
