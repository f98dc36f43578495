"""A recorded session as a test: `pytest recorded_test.py`. The agent under test must send the
model the recorded requests; a changed instruction or tool fails the test. Run it to record anew."""

from mainspring import Agent, run
from mainspring.testing import RecordedSession, record


def price(item: str, pieces: int = 1) -> float:
    """Look up what an item costs, in euros."""
    return {"lamp": 19.5}[item] * pieces


seller = Agent(name="seller", instructions="Answer in one sentence.", tools=[price])


def test_the_agent_sends_the_recorded_requests(recorded_session: RecordedSession) -> None:
    recorded_session("sale.jsonl", agent=seller).check()


if __name__ == "__main__":
    result = run(seller, "What do two lamps cost?", key="recorded_test")
    record(result.session_id, "sale.jsonl")
    print(result.output)
