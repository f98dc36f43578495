"""All scenes, by command."""

from __future__ import annotations

from tests.cli.scenes import memory_scenes, service_scenes, session_scenes
from tests.cli.scenes.scene import Scene

PROVEN_ELSEWHERE: dict[tuple[str, str], str] = {}
"""Options of commands that run until they are ended: the tests that prove them."""
SCENES: dict[str, Scene] = {
    **session_scenes.SCENES,
    **memory_scenes.SCENES,
    **service_scenes.SCENES,
}
