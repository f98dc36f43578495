"""What a shell command would do, judged by a real grammar. What to do about it is not ours.

`split` reads a text twice, by tree-sitter's grammar and by a scanner of our own; where the two
disagree, or where bash could do more than either can see, the answer is `Unclear`.
"""

from mainspring.harness.permissions.bash.command import (
    Assignment,
    Command,
    Commands,
    Redirect,
    Unclear,
    Word,
)
from mainspring.harness.permissions.bash.critical import REMOVING
from mainspring.harness.permissions.bash.judge import Verdict, judge
from mainspring.harness.permissions.bash.rules import Behavior, covered, matches, might_match
from mainspring.harness.permissions.bash.split import split
from mainspring.harness.permissions.bash.suggest import suggest

__all__ = [
    "REMOVING",
    "Assignment",
    "Behavior",
    "Command",
    "Commands",
    "Redirect",
    "Unclear",
    "Verdict",
    "Word",
    "covered",
    "judge",
    "matches",
    "might_match",
    "split",
    "suggest",
]
