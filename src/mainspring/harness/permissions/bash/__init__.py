"""What a shell command would do, by a real grammar. The decision about it is made elsewhere.

`parse_commands` parses a text twice: with tree-sitter's grammar and with our own scanner. If they
disagree, or bash could do more than either of them shows, the answer is `UnclearCommands`.
"""

from mainspring.harness.permissions.bash.command import (
    HOME,
    Assignment,
    Command,
    Commands,
    Redirect,
    UnclearCommands,
    Word,
)
from mainspring.harness.permissions.bash.command_analysis import CommandAnalysis, analyze_command
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.effects import REMOVING, written_words
from mainspring.harness.permissions.bash.rule_matching import (
    Behavior,
    is_covered,
    might_match,
    rule_matches,
    suggest_rule,
)

__all__ = [
    "HOME",
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
