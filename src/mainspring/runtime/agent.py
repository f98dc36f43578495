"""An agent: who it is, what it may use, how far it may go. A value; running it is `Runtime`'s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.core.model import Effort
from mainspring.core.tool import Tool
from mainspring.harness.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Agent:
    name: str = "assistant"
    instructions: str = ""
    model: str = "scripted:demo"
    """`provider:name`, or several in order of preference, separated by commas."""
    tools: Sequence[Tool] = ()
    limits: Limits = field(default_factory=Limits)
    effort: Effort = "none"
    rules: Sequence[str] = ()
    """What must hold whatever happens: pinned, never compacted away."""
