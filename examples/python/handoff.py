"""A handoff: another agent goes on with the conversation, in a thread of its own."""

import anyio

from mainspring import Agent, Event, open_runtime
from mainspring.events import ThreadHandedOff

billing = Agent(name="billing", description="Knows everything about invoices.")
desk = Agent(name="desk", instructions="Hand invoices to billing.", handoffs=[billing])


async def main() -> None:
    async with open_runtime() as runtime:
        session = await runtime.start(desk, "My invoice is wrong.", key="handoff")
        async for event in session.stream():
            if isinstance(event, Event) and isinstance(event.payload, ThreadHandedOff):
                print("now:", event.payload.to_agent_name)
        await session.send("It is number 17.", client_id="second")
        await session.run()
        print((await session.last_result()).output)


anyio.run(main)
