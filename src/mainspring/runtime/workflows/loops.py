"""When a loop is complete, and what an agent's answer says about it."""

from __future__ import annotations

import re

from mainspring.runtime.workflows.format.definition import Loop

_MAX_SIGNAL_CHARS = 200_000
"""The end of an answer that is searched for the signal."""


def is_signalled(output: str, signal: str) -> bool:
    """Whether an answer says that the work is complete: the signal in a tag, on a line of its own,
    or at the end."""
    text, wanted = output[-_MAX_SIGNAL_CHARS:], re.escape(signal)
    if re.search(rf"<([a-zA-Z][\w-]*)[^>]*>\s*{wanted}\s*</\1>", text, re.IGNORECASE):
        return True
    stripped = text.rstrip().rstrip(".,;:!?").rstrip()
    return stripped.endswith(signal) or any(line.strip() == signal for line in text.splitlines())


def without_signal(output: str, signal: str | None) -> str:
    """The answer without the tags that end a loop."""
    text = re.sub(r"<promise>[\s\S]*?</promise>", "", output, flags=re.IGNORECASE)
    if signal:
        wanted = re.escape(signal)
        pattern = rf"<([a-zA-Z][\w-]*)[^>]*>\s*{wanted}\s*</\1>"
        text = re.sub(pattern, "", text, flags=re.IGNORECASE)
    return text.strip()


def unmet(loop: Loop) -> str:
    """The error of a loop that was never complete."""
    channels = [
        *([f"the signal '{loop.until}'"] if loop.until else ()),
        *(["a passing until_bash"] if loop.until_bash else ()),
        *([f"'{loop.until_field}' being true"] if loop.until_field else ()),
    ]
    return f"{loop.max_iterations} iterations without {' or '.join(channels)}"
