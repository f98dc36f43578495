"""Rewards over values of the domain, and judges that are scripts."""

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, outcomes, results_of

from mainspring.core.errors import InvalidInput

GRADERS: list[dict[str, object]] = [
    {
        "name": "in time for the meeting at 9:00",
        "type": "measure",
        "value": {"call": "book_flight", "field": "flight.arrival_hour"},
        "max": 9,
    },
    {
        "name": "cheap",
        "type": "measure",
        "value": {"call": {"tool": "book_flight"}, "field": "flight.price"},
        "best": 0,
        "worst": 500,
        "weight": 1,
    },
    {
        "name": "direct",
        "type": "trajectory",
        "used": [{"tool": "book_flight", "input": {"stops": 0}}],
        "weight": 0.1,
    },
    {"name": "comfort", "type": "regex", "pattern": "aisle", "weight": 0.05},
]


async def test_the_cheap_night_flight_that_arrives_late_loses(agent: AgentWithSuite):
    flights: dict[str, dict[str, object]] = {
        "night": {"flight": {"arrival_hour": 10.5, "price": "$50"}, "stops": 0},
        "dear": {"flight": {"arrival_hour": 8.25, "price": "$480.00"}, "stops": 1},
        "fair": {"flight": {"arrival_hour": 9, "price": 250}, "stops": 0},
    }
    parts: list[dict[str, object]] = []
    for name, flight in flights.items():
        call = {"calls": [{"tool": "book_flight", "input": flight}]}
        parts.append({"when": name, "steps": [call, {"says": "booked, an aisle seat"}]})
    agent.write_model(*parts)
    service = {"tool": "book_flight", "description": "Books.", "answers": {"*": "booked"}}
    suite = agent.write_suite(
        {
            "graders": GRADERS,
            "cases": [
                {
                    "id": name,
                    "input": f"Book the {name} flight.",
                    "services": [service],
                    "approvals": "allow",
                }
                for name in flights
            ],
        }
    )
    run = await agent.run(suite)
    assert outcomes(run) == {"night": "failed", "dear": "passed", "fair": "passed"}
    rewards = {name: results_of(run, name)[0].score for name in flights}
    assert rewards["night"] == 0.0
    assert rewards["dear"] == pytest.approx((0.04 + 0.05) / 1.15, abs=1e-6)
    assert rewards["fair"] == pytest.approx((0.5 + 0.1 + 0.05) / 1.15, abs=1e-6)


NUMBERS: dict[str, dict[str, object]] = {
    "answer": {"answer": True, "pattern": r"costs ([\d,.]+)"},
    "file": {"file": "report.json", "field": "offers.total"},
    "text": {"file": "report.txt"},
    "command": {"command": "cat report.txt"},
    "no-number": {"file": "words.txt"},
    "no-match": {"answer": True, "pattern": "nothing like it (.*)"},
    "no-file": {"file": "missing.json", "field": "total"},
    "no-call": {"call": "book_flight", "field": "price"},
}


async def test_numbers_are_read_from_the_answer_a_file_and_a_command(agent: AgentWithSuite):
    agent.write_model({"steps": [{"says": "It costs 1,250.00 dollars."}]})
    files = {"report.json": '{"offers": {"total": 1250}}', "report.txt": "1250\n", "words.txt": "x"}
    limit = {"type": "measure", "min": 1249, "max": 1251}
    suite = agent.write_suite(
        {
            "cases": [
                {"id": name, "input": "Go.", "files": files, "graders": [{**limit, "value": value}]}
                for name, value in NUMBERS.items()
            ]
        }
    )
    found = outcomes(await agent.run(suite))
    expected = dict.fromkeys(NUMBERS, "passed")
    expected |= {name: "failed" for name in NUMBERS if name.startswith("no-")}
    assert found == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"answer": True, "file": "x"}, "one of `answer`"),
        ({"call": "book"}, "needs `field`"),
        ({"file": "../x", "field": "a"}, "inside the workspace"),
        ({"answer": True, "pattern": "("}, "RE2"),
    ],
)
def test_a_wrong_source_of_a_number_is_reported(
    value: dict[str, object], problem: str, agent: AgentWithSuite
):
    grader = {"type": "measure", "value": value, "worst": 1, "weight": 1}
    with pytest.raises(InvalidInput, match=problem):
        agent.write_suite({"cases": [{"id": "a", "input": "x", "graders": [grader]}]})


async def test_a_judge_can_be_a_script_and_a_changed_script_judges_again(agent: AgentWithSuite):
    judge = agent.folder / "judge.yaml"
    verdict = '- steps: [{says: \'{"reason": "It greets.", "verdict": "VERDICT"}\'}]'
    judge.write_text(verdict.replace("VERDICT", "met"))
    suite = agent.write_suite(
        {
            "cases": [
                {
                    "id": "polite",
                    "input": "Greet.",
                    "graders": [
                        {
                            "type": "judge",
                            "model": "scripted:judge.yaml",
                            "criteria": [{"name": "polite", "text": "It is polite."}],
                        }
                    ],
                }
            ]
        }
    )
    assert outcomes(await agent.run(suite)) == {"polite": "passed"}
    judge.write_text(verdict.replace("VERDICT", "not met"))
    assert outcomes(await agent.run(suite)) == {"polite": "failed"}
    judge.write_text("- steps: [{says: I like it}]")
    run = await agent.run(suite)
    assert outcomes(run) == {"polite": "error"}
    assert "gave no verdict" in (results_of(run, "polite")[0].error or "")


async def test_a_judge_outside_the_agents_folder_is_refused(agent: AgentWithSuite):
    grader = {"type": "judge", "model": "scripted:../judge.yaml", "ready": "faithfulness"}
    suite = agent.write_suite({"cases": [{"id": "a", "input": "x", "graders": [grader]}]})
    with pytest.raises(InvalidInput, match="inside the agent's folder"):
        await agent.run(suite)
