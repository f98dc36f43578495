"""Who sends what tests send."""

from mainspring.core.sender import Sender

TESTER = Sender(kind="person", id="tester")
