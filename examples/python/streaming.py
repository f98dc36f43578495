"""One stream of deltas and events; `match` narrows it."""

import anyio

from mainspring import Agent, Event, RunResult, TextDelta, open_runtime
from mainspring.events import StatusIdle


async def main() -> None:
    poet = Agent(name="poet", instructions="Answer with a haiku.")
    async with open_runtime() as runtime:
        session = await runtime.start(poet, "A haiku about a spring, please.", key="streaming")
        async for event in session.stream():
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Event(payload=StatusIdle(reason=reason)):
                    print(f"\n[{reason}]")
                case RunResult(turns=turns):
                    print("turns:", turns)
                case _:
                    pass


anyio.run(main)
