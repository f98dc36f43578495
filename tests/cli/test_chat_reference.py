"""The table of docs/cli/chat.md that compares chat with Claude Code says what is true."""

import re
from pathlib import Path

import pytest

from mainspring.edges.cli.chat.slash_output import KEY_BINDINGS
from mainspring.runtime.slash_commands import ALIASES, COMMANDS

PAGE = Path(__file__).parents[2] / "docs/cli/chat.md"
ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<state>works|different|absent) \| (?P<why>[^|]*)\|$")
ROWS = [match for line in PAGE.read_text().splitlines() if (match := ROW.match(line))]
KEYS = {key for key, _ in KEY_BINDINGS}
NAMES = {command.name for command in COMMANDS} | {*ALIASES}


def test_the_table_is_read():
    assert len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_row_of_the_table_is_true(row: "re.Match[str]"):
    name = row["name"].strip("`")
    is_there = name[1:] in NAMES if name.startswith("/") else name.split(" ")[0] in KEYS
    assert is_there == (row["state"] != "absent")
    if row["state"] != "works":
        assert row["why"].strip(), "it says why"
    alias = ALIASES.get(name[1:])
    assert alias is None or f"`/{alias}`" in row["why"]


def test_every_alias_means_a_command_and_none_hides_one():
    own = {command.name for command in COMMANDS}
    assert {*ALIASES.values()} <= own
    assert not own & {*ALIASES}


def test_the_page_lists_every_command():
    page = PAGE.read_text()
    missing = [item.usage for item in COMMANDS if f"  {item.usage} " not in page]
    assert missing == []
