"""Who sends what tests send."""

from __future__ import annotations

from mainspring.core.sender import Sender

TESTER = Sender(kind="person", id="tester")
