"""A campaign that dies after any of its events continues: no call is paid for twice, and the
decision is the same, on both stores."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import pytest
from tests.improve.evolution.test_programs import opened, write_doubling

from mainspring.core.ports import CapturedOutput, ExecRequest, ExecResult
from mainspring.improve.evolution.campaigns.campaign_log import Campaign
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.model_proposer import AskImprover, ReserveMoney


class Killed(BaseException):
    """As SIGKILL: nothing that the process does afterwards counts."""


@dataclass
class World:
    """Runs programs and asks the improver, until it is killed."""

    ask_improver: AskImprover
    left: int | None = None
    calls: list[str] = field(default_factory=list[str])

    def spend(self, what: str) -> None:
        if self.left == 0:
            raise Killed
        self.left = None if self.left is None else self.left - 1
        self.calls.append(what)

    async def ask(
        self, key: str, system: str, question: str, reserve: ReserveMoney
    ) -> tuple[str, Decimal]:
        self.spend("proposal")
        return await self.ask_improver(key, system, question, reserve)

    async def run_program(self, folder: Path, program: ExecRequest) -> ExecResult:
        """The program of `solve.py`, without a process."""
        self.spend("run")
        names: dict[str, object] = {}
        exec((folder / "solve.py").read_text(), names)  # noqa: S102 (our own program)
        solve: Callable[[object], object] = names["solve"]  # pyright: ignore[reportAssignmentType]
        rows: list[bytes] = []
        for line in program.stdin.splitlines():
            case = json.loads(line)
            try:
                rows.append(json.dumps({"id": case["id"], "output": solve(case["input"])}).encode())
            except TypeError:
                break
        output = b"\n".join(rows)
        return ExecResult(
            status=0,
            stdout=CapturedOutput(head=output, size=len(output)),
            stderr=CapturedOutput(),
        )


def in_world(campaigns: FolderCampaigns, world: World) -> FolderCampaigns:
    assert campaigns.program is not None
    program = replace(campaigns.program, run_program=world.run_program)
    return replace(campaigns, ask=world.ask, program=program)


def decision(campaign: Campaign) -> object:
    assert campaign.ended is not None
    kept = [(step.candidate, step.is_kept, step.reason) for step in campaign.steps]
    promoted = [(item.candidate, item.gate) for item in campaign.promotions]
    return kept, promoted, campaign.ended.status, campaign.ended.calls


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_campaign_killed_after_any_event_continues_without_paying_twice(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
):
    url = request.getfixturevalue("postgres_url") if store == "postgres" else None
    folder = write_doubling(tmp_path / "doubling")
    opening: AbstractAsyncContextManager[FolderCampaigns] = opened(folder, store=url)
    async with opening as campaigns:
        whole = World(campaigns.ask)
        reference = in_world(campaigns, whole)
        expected = decision(await reference.run(await reference.start()))
        assert len(whole.calls) >= 10
        for after in range(len(whole.calls)):
            world = World(campaigns.ask, left=after)
            killed = in_world(campaigns, world)
            campaign_id = await killed.start()
            with pytest.raises(Killed):
                await killed.run(campaign_id)
            rest = World(campaigns.ask)
            campaign = await in_world(campaigns, rest).run(campaign_id)
            assert decision(campaign) == expected, after
            assert [*world.calls, *rest.calls] == whole.calls, after
