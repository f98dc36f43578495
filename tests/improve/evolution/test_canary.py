"""A promoted version can be a canary: the ids of new sessions decide who uses it, and sessions keep
their version."""

import json
from pathlib import Path

import pytest
from tests import fork_server
from tests.environ import clean_environ
from tests.improve.evolution.support_agent import change, opened, write_support_agent

from mainspring.improve.evolution.campaigns.campaign_log import read_ledger
from mainspring.runtime.agent_folder.canary import read_canary

ASKED = "Do you know about the shipping of my lamp, please?"
EXPECTED = {True: "It is 3 days.", False: "I do not know."}


@pytest.mark.slow
async def test_a_share_of_the_sessions_uses_a_canary_and_keeps_it(tmp_path: Path):
    folder = write_support_agent(tmp_path / "support", per_topic=6)
    change(folder / "evolve.yaml", canary=0.5, policy="apply")
    before = (folder / "AGENTS.md").read_bytes()
    environ = clean_environ()  # the home of this process: both are one installation

    def run(*arguments: str) -> str:
        done = fork_server.run(*arguments, cwd=folder, env=environ, stdin="")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
        assert campaign.status == "promoted"
        ledger = await read_ledger(campaigns.log, campaigns.agent)
        canary = read_canary(campaigns.place, folder)
    assert ledger.canary is not None
    assert canary is not None
    assert (folder / "AGENTS.md").read_bytes() == before  # others do not notice
    answers = [run("-p", ASKED) for _ in range(6)]
    lines = [json.loads(line) for line in run("sessions", "ls", "--json").splitlines()]
    expected = [EXPECTED[canary.includes(line["id"])] for line in reversed(lines)]
    assert answers == expected
    again = [run("-p", ASKED, "--resume", line["id"]) for line in reversed(lines[-3:])]
    assert again == expected[:3]
    assert run("evolve", "rollback") == "version 1 is in use again"
    assert {run("-p", ASKED) for _ in range(4)} == {EXPECTED[False]}
