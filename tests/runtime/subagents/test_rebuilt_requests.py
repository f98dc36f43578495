"""Requests of subagents, rebuilt from the log alone."""

from pathlib import Path

import msgspec
from tests.runtime.subagents.scripted_threads import LEAD, newest, staged, troupe, turn_of

from mainspring.capabilities.providers.scripted import ScriptAnswer
from mainspring.core.events import ThreadCreated
from mainspring.core.model import Request
from mainspring.harness.context import xray
from mainspring.testing import calls, says


async def test_the_request_of_a_fork_is_rebuilt_byte_for_byte(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return calls("agent", description="d", prompt="your part", subagent_type="fork")
        return says("forked" if "your part" in newest(request) else "joined")

    model = troupe({"begin": lead})
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(LEAD, "begin")
        await session.run()
        events = await session.events()
        digests = xray.prefix_digests(events)
        prefixes = {d: xray.decode_prefix(await runtime.log.blob(d)) for d in digests}
    [birth] = [event.payload for event in events if isinstance(event.payload, ThreadCreated)]
    [shot] = xray.model_calls(events, thread_id=birth.session_thread_id, prefixes=prefixes)
    [sent] = [item for item in model.requests if "your part" in newest(item)]
    assert msgspec.json.encode(shot.request) == msgspec.json.encode(sent)
