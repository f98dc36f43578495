"""What a shell command would do, judged by a real grammar. What to do about it is not ours.

`split` reads a text twice, by tree-sitter's grammar and by a scanner of our own; where the two
disagree, or where bash could do more than either can see, the answer is `Unclear`.
"""

from mainspring.harness.permissions.bash.command import (
    Assignment,
    Command,
    Commands,
    Redirect,
    UnclearCommands,
    Word,
)
from mainspring.harness.permissions.bash.command_analysis import CommandAnalysis, analyze_command
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.critical import REMOVING
from mainspring.harness.permissions.bash.effects import written_words
from mainspring.harness.permissions.bash.rule_matching import (
    Behavior,
    is_covered,
    might_match,
    rule_matches,
)
from mainspring.harness.permissions.bash.rule_suggestion import suggest_rule

__all__ = [
    "REMOVING",
    "Assignment",
    "Behavior",
    "Command",
    "CommandAnalysis",
    "Commands",
    "Redirect",
    "UnclearCommands",
    "Word",
    "analyze_command",
    "is_covered",
    "might_match",
    "parse_commands",
    "rule_matches",
    "suggest_rule",
    "written_words",
]
