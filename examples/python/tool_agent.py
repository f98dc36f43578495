"""A plain function is a tool: its type hints and its docstring are what the model reads."""

from mainspring import Agent, run

PRICES = {"lamp": 19.5, "chair": 49.0}


def price(item: str, pieces: int = 1) -> float:
    """Look up what an item costs, in euros.

    item: its name, singular
    """
    return PRICES[item] * pieces


seller = Agent(name="seller", instructions="Answer in one sentence.", tools=[price])
print(run(seller, "What do two lamps cost?", key="tool_agent").output)
