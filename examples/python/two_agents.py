"""An agent calls another one, which gives back a value of its output type."""

from dataclasses import dataclass

from mainspring import Agent, run


@dataclass
class Place:
    room: str
    shelf: int


def shelves(room: str) -> list[str]:
    """List what is on the shelves of a room, from the first on."""
    return {"kitchen": ["cups", "tea"], "office": ["paper", "stapler"]}[room]


finder = Agent(
    name="finder", description="Finds out where things are.", tools=[shelves], output_type=Place
)
host = Agent(name="host", instructions="Help the guests.", subagents=[finder])
print(run(host, "Where is the stapler?", key="two_agents").output)
