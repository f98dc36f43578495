import subprocess
from pathlib import Path

from tests.permissions.bash.corpus import DESTRUCTIVE
from tests.permissions.bash.corpus_tools import DESTRUCTIVE_TOOLS
from tests.permissions.bash.harmless import ORDINARY, READ_ONLY
from tests.row_checks import for_each

from mainspring.harness.permissions.bash import (
    Commands,
    analyze_command,
    is_covered,
    parse_commands,
    rule_matches,
)

CASES = [(rule, t) for rule, texts in (DESTRUCTIVE | DESTRUCTIVE_TOOLS).items() for t in texts]


def test_the_corpus_is_large_and_has_no_duplicates():
    texts = [text for _, text in CASES] + list(READ_ONLY) + [text for text, _ in ORDINARY]
    assert len(texts) >= 500
    assert len(set(CASES)) == len(CASES)


@for_each(("rule", "text"), CASES)
def test_a_destructive_command_is_neither_read_only_nor_allowed_by_a_similar_rule(
    rule: str, text: str
):
    if rule not in {"watch *", "setsid *"}:
        assert not analyze_command(text).read_only
    assert not rule_matches(rule, text, behavior="allow")
    assert not is_covered([rule, "ls *", "echo *", "cat *"], text)


def test_a_text_that_parses_is_valid_bash(tmp_path: Path):
    texts = [text for _, text in CASES] + list(READ_ONLY) + [text for text, _ in ORDINARY]
    script = tmp_path / "script"
    for text in texts[::3]:
        if isinstance(parse_commands(text), Commands):
            script.write_text(text)
            assert subprocess.run(["bash", "-n", script], capture_output=True).returncode == 0, text


@for_each("text", READ_ONLY)
def test_commands_that_only_read_are_read_only(text: str):
    verdict = analyze_command(text)
    assert verdict.read_only, verdict.reason
    assert not verdict.destructive
    assert is_covered([], text)


@for_each(("text", "rule"), ORDINARY)
def test_a_rule_allows_the_commands_it_was_written_for(text: str, rule: str):
    assert is_covered([rule], text)
    assert not analyze_command(text).read_only
