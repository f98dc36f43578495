"""The output has a type: the model's answer is checked, and asked for again if it is wrong."""

from dataclasses import dataclass
from typing import Literal

from mainspring import Agent, run


@dataclass
class Ticket:
    title: str
    urgency: Literal["low", "high"]
    people: list[str]


reader = Agent(name="reader", instructions="Read a ticket out of the mail.", output_type=Ticket)
mail = "The lift is stuck again, with Ann and Bob in it!"
ticket = run(reader, mail, key="structured_output").output
print(ticket.title, "|", ticket.urgency, "|", ", ".join(ticket.people))
