"""The fixture `recorded_session`, which pytest discovers wherever Mainspring is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from mainspring.runtime.agent import AnyAgent
from mainspring.testing.replay import ReplayResult, replay_file


class RecordedSession(Protocol):
    def __call__(self, file: str | Path, *, agent: AnyAgent) -> ReplayResult:
        """Replay a recording in the test's folder with the agent under test: its instructions,
        tools and output type in place of the recorded ones. `check()` fails at the first request to
        the model that differs from the recorded one."""
        ...


@pytest.fixture
def recorded_session(request: pytest.FixtureRequest) -> RecordedSession:
    """`recorded_session("sale.jsonl", agent=seller).check()`"""

    def replay(file: str | Path, *, agent: AnyAgent) -> ReplayResult:
        return replay_file(request.path.parent / file, agent=agent)

    return replay
