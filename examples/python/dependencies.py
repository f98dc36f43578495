"""Tools read what the program passes as `deps`, with its type; the model sees nothing of it."""

from dataclasses import dataclass, field

from mainspring import Agent, Call, run


@dataclass
class Shop:
    customer: str
    stock: dict[str, int] = field(default_factory=dict[str, int])


def in_stock(item: str, call: Call[Shop]) -> str:
    """Look up how many pieces of an item there are."""
    shop = call.deps
    return f"{shop.stock.get(item, 0)} for {shop.customer}"


seller = Agent(name="seller", tools=[in_stock])
shop = Shop(customer="Ann", stock={"lamp": 3})
print(run(seller, "Are there lamps?", key="dependencies", deps=shop).output)
