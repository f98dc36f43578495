import random
from pathlib import Path

import pytest
from tests.permissions.bash.fuzz import Tally, Writer, check, check_intact, check_noise
from tests.permissions.bash.oracle import Stage


@pytest.mark.parametrize("seed", range(3))
def test_bash_runs_no_command_that_the_parser_missed(seed: int, tmp_path: Path):
    writer, stage, tally = Writer(random.Random(seed)), Stage(tmp_path), Tally()
    for _ in range(40):
        check_intact(writer.text(), stage, tally)
        check(writer.damaged(), stage, tally)
    assert tally.clear > 10
    assert tally.ran > 10


@pytest.mark.parametrize("seed", range(4))
def test_random_noise_is_analyzed_without_an_exception(seed: int):
    writer = Writer(random.Random(seed))
    for _ in range(150):
        check_noise(writer.noise())
