"""A recorded session as a test: `pytest recorded_test.py`. The agent under test must ask the model
the same as it did; a changed instruction or tool fails the test. Run as a program, it records."""

from mainspring import Agent, run
from mainspring.testing import RecordedSession, record


def price(item: str, pieces: int = 1) -> float:
    """Look up what an item costs, in euros."""
    return {"lamp": 19.5}[item] * pieces


seller = Agent(name="seller", instructions="Answer in one sentence.", tools=[price])


def test_the_sale_goes_as_it_went(recorded_session: RecordedSession) -> None:
    recorded_session("sale.jsonl", agent=seller).check()


if __name__ == "__main__":
    result = run(seller, "What do two lamps cost?", key="recorded_test")
    record(result.session_id, "sale.jsonl")
    print(result.output)
