"""Append to sessions: python -m tests.log.appending_process FILE COUNT SESSION..."""

import sys
from pathlib import Path

import anyio
from tests.log.sample_sessions import opened, says

from mainspring.log.session_log import SessionLog


async def talk(log: SessionLog, session_id: str, count: int) -> None:
    writer = await log.hold(session_id, owner="talker")
    for n in range(count):
        await writer.append(says(f"{n}"))
    await writer.release()


async def main(path: Path, count: int, session_ids: list[str]) -> None:
    async with opened(path) as log, anyio.create_task_group() as group:
        for session_id in session_ids:
            group.start_soon(talk, log, session_id, count)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
