"""Whether a command may run programs that its text does not name."""

from __future__ import annotations

from mainspring.harness.permissions.bash.command import Command
from mainspring.harness.permissions.bash.effects import basename, edited_files
from mainspring.harness.permissions.bash.escapes import escapes
from mainspring.harness.permissions.bash.git import git_runs
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.programs import PLAIN
from mainspring.harness.permissions.bash.reading import plain_name
from mainspring.harness.permissions.bash.wrappers import SHELLS, opened

_WRAPPERS = names("builtin command env eval exec find nice nohup stdbuf time timeout trap xargs")
"""What they run is listed beside them."""


def runs_unknown(command: Command) -> str:
    """Why a command that does more than look may, or an empty text."""
    if not command.words or edited_files(command) is not None:
        return ""
    name = plain_name(command)
    if name == "git":
        runs = git_runs(command.words[1:]) or any(True for _ in escapes(command))
    elif name in PLAIN:
        runs = any(True for _ in escapes(command))
    elif name in SHELLS:
        wrapped = opened(command)
        runs = not wrapped.texts or bool(wrapped.unclear)
    else:
        runs = name not in _WRAPPERS
    return f"`{basename(command)}` may run programs that the command does not name" if runs else ""
