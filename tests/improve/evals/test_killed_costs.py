"""What a run shows of requests that died with their process."""

from decimal import Decimal
from pathlib import Path

from tests.cli.conftest import opened

from mainspring.core.events import (
    BudgetReserved,
    BudgetSettled,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionCreated,
    Usage,
)
from mainspring.improve.evals.trajectory import read_trajectory


async def test_the_reservation_of_a_killed_request_is_no_cost_of_the_trial(tmp_path: Path):
    async with opened(tmp_path / "log.db") as log:
        session = await log.create(SessionCreated(agent_name="tested"))
        writer = await log.hold(session.id, owner="worker")
        for number, (used, cost, stop) in enumerate(
            [
                (Usage(input_tokens=900, output_tokens=8_000), None, "abandoned"),
                (Usage(input_tokens=700, output_tokens=20), "0.0022", "end_turn"),
            ]
        ):
            reservation = f"resv_{number}"
            reserved = BudgetReserved(
                reservation_id=reservation, cost_usd="0.12", input_tokens=900, output_tokens=8_000
            )
            started = ModelRequestStarted(model="m", request_id=f"r{number}")
            _, start = await writer.append(reserved, started)
            ended = ModelRequestEnded(
                model_request_start_id=start.id,
                model_usage=used,
                is_error=cost is None,
                stop_reason=stop,
                cost_usd=cost,
            )
            settled = BudgetSettled(reservation_id=reservation, cost_usd=cost or "0.12")
            await writer.append(ended, settled)
        trajectory = read_trajectory(await log.read(session.id))
    assert (trajectory.cost_usd, trajectory.cut_off, trajectory.turns) == (Decimal("0.0022"), 1, 1)
    assert trajectory.usage.output_tokens == 20
