"""Public: models that follow a script, and recorded sessions that are replayed and branched."""

from importlib import import_module
from typing import TYPE_CHECKING

from mainspring.capabilities.providers.scripted import (
    Scripted,
    ScriptLine,
    calls,
    fails,
    says,
    thinks,
)
from mainspring.core.model import Model, Reply, Request

if TYPE_CHECKING:
    from mainspring.testing.pytest_plugin import RecordedSession
    from mainspring.testing.recording import record
    from mainspring.testing.replay import ReplayResult, replay_file

_LATER = {
    "RecordedSession": "mainspring.testing.pytest_plugin",
    "ReplayResult": "mainspring.testing.replay",
    "record": "mainspring.testing.recording",
    "replay_file": "mainspring.testing.replay",
}
"""Names that are imported when they are first used: a scripted model needs none of them."""

__all__ = [
    "Model",
    "RecordedSession",
    "ReplayResult",
    "Reply",
    "Request",
    "ScriptLine",
    "Scripted",
    "calls",
    "fails",
    "record",
    "replay_file",
    "says",
    "thinks",
]


def __getattr__(name: str) -> object:
    if home := _LATER.get(name):
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value
    raise AttributeError(f"mainspring.testing has no public name {name!r}")
