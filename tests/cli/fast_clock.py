"""The command with a clock 60 times as fast, as far as models are waited for: a test program."""

import sys
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

from mainspring.capabilities.providers.retry import Timing
from mainspring.edges.cli.main import main
from mainspring.service import service_worker
from mainspring.wiring import providers

SPEED = 60


def fast_timing() -> Timing:
    return Timing(
        clock=lambda: time.monotonic() * SPEED, sleep=lambda seconds: anyio.sleep(seconds / SPEED)
    )


if __name__ == "__main__":
    providers.Timing = fast_timing
    service_worker.FIRST_OUTAGE_SECONDS /= SPEED
    service_worker.MAX_OUTAGE_SECONDS /= SPEED
    main()
