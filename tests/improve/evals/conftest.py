from pathlib import Path

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, new_agent


@pytest.fixture
def agent(tmp_path: Path) -> AgentWithSuite:
    return new_agent(tmp_path / "agent")
