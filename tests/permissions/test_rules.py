"""Rules: how they are written, and which calls they speak for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.permissions.cases import HOME, WORKSPACE, call
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission, RuleText
from mainspring.harness.permissions.call_analysis import AnalyzedCall
from mainspring.harness.permissions.path_rules import PatternRoots
from mainspring.harness.permissions.rule import Rule, forbids, parse_rule, permits, rule_text
from mainspring.harness.permissions.tool_names import ALIASES, canonical_name, claude_code_name

ROOTS = PatternRoots(folder=WORKSPACE, cwd=WORKSPACE, home=HOME)
KINDS = [
    "Bash", "bash", "Bash(npm run *)", "Bash(git:*)", "Bash(*)", "Read(./.env)", "Read(//etc/**)",
    "Edit(~/notes/*.md)", "Write(/src/**)", "WebFetch(domain:*.x.com)", "WebFetch(domain:x.com)",
    "mcp__github", "mcp__github__*", "mcp__github__get_issue", "mcp__*", "Agent(Explore)",
    "Task(Explore)", "Skill(deploy)", "Skill(deploy *)", "TodoWrite", "*", "deploy(env:prod)",
    "Agent(model:opus)", "mcp__db__query(sql:*drop*)", "WebFetch(url:*token=*)", "Bash(echo (x))",
]  # fmt: skip


@for_each("text", KINDS)
def test_a_rule_is_unchanged_after_printing_and_parsing(text: str):
    rule = parse_rule(text)
    assert rule.text == text
    assert parse_rule(str(rule)) == rule


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]+\([^\n]{1,20}\)", fullmatch=True))
def test_any_text_is_a_printable_rule_or_is_refused(text: str):
    try:
        rule = parse_rule(text)
    except InvalidInput:
        return
    assert parse_rule(str(rule)) == rule


@for_each(
    ("text", "problem"),
    [
        ("", "is not a tool name"),
        ("rm -rf", "is not a tool name"),
        ("(x)", "is not a tool name"),
        ("Bash(ls", "closing parenthesis"),
        ("Bash(ls) x", "closing parenthesis"),
        ("Bash()", "parentheses are empty"),
        ("Read(!x)", "cannot start with !"),
        ("Read([a)", "without its ]"),
        ("WebFetch(x.com)", "domain:host"),
        ("WebFetch(domain:x/*)", "followed by a host"),
        ("deploy(prod)", "parameter:value"),
    ],
)
def test_invalid_rules_are_explained(text: str, problem: str):
    with pytest.raises(InvalidInput, match=problem.replace("]", r"\]")):
        parse_rule(text)


@pytest.mark.parametrize("text", ["*", "mcp__*", "mcp__*__get", "B*", "deploy(env:test)"])
def test_some_rules_may_deny_but_not_allow(text: str):
    parse_rule(text, behavior="deny")
    parse_rule(text, behavior="ask")
    with pytest.raises(InvalidInput):
        parse_rule(text, behavior="allow")


def test_an_allow_rule_may_use_a_glob_after_a_literal_server():
    assert parse_rule("mcp__github__get_*", behavior="allow").tool == "mcp__github__get_*"


def test_tool_names_of_claude_code_map_to_ours():
    names = [canonical_name(name) for name in ("Bash", "TodoWrite", "Task", "mine")]
    assert names == ["bash", "task_create", "agent", "mine"]
    assert {canonical_name(claude_code_name(n)) for n in ALIASES.values()} == set(ALIASES.values())


def test_a_rule_of_an_update_is_written_as_in_settings():
    assert rule_text(RuleText(tool_name="Bash", rule_content="ls *")) == "Bash(ls *)"
    assert rule_text(RuleText(tool_name="Bash")) == "Bash"


SPOKEN_FOR = [
    ("Read", call("grep", pattern="x")),
    ("Read", call("read", file_path="a")),
    ("Edit", call("write", file_path="a", content="")),
    ("Write", call("write", file_path="a", content="")),
    ("Edit(src/**)", call("write", file_path="src/a", content="")),
    ("Read(src/**)", call("grep", path="src", pattern="x")),
    ("Read(.env)", call("read", file_path=f"{WORKSPACE}/deep/.env")),
    ("WebFetch(domain:x.com)", call("web_fetch", url="https://X.com:443/a")),
    ("WebFetch(domain:*.x.com)", call("web_fetch", url="https://a.b.x.com/")),
    ("WebFetch", call("web_fetch", url="https://a.b.x.com/")),
    ("mcp__gh", call("mcp__gh__get")),
    ("mcp__gh__*", call("mcp__gh__get")),
    ("mcp__gh__get", call("mcp__gh__get")),
    ("Agent(Explore)", call("agent", subagent_type="Explore")),
    ("Skill(deploy *)", call("skill", skill="deploy prod")),
    ("Skill(deploy:*)", call("skill", skill="deploy")),
    ("deploy(env:prod*)", call("deploy", env="production")),
    ("deploy(force:true)", call("deploy", force=True)),
    ("deploy(count:3)", call("deploy", count=3)),
    ("Agent(model:opus)", call("agent", model="opus", subagent_type="x")),
    ("*", call("anything")),
]


@for_each(("text", "judged"), SPOKEN_FOR)
def test_a_rule_forbids_matching_calls(text: str, judged: AnalyzedCall):
    assert forbids(parse_rule(text), judged, ROOTS, "deny")


NOT_SPOKEN_FOR = [
    ("Write", call("edit", file_path="a")),
    ("Read", call("edit", file_path="a")),
    ("Read(src/**)", call("read", file_path="lib/a")),
    ("Edit(src/**)", call("read", file_path="src/a")),
    ("WebFetch(domain:x.com)", call("web_fetch", url="https://x.com.evil.org/")),
    ("WebFetch(domain:x.com)", call("web_fetch", url="https://x.com@evil.org/")),
    ("WebFetch(domain:*.x.com)", call("web_fetch", url="https://x.com/")),
    ("WebFetch(domain:*.x.com)", call("web_fetch", url="https://evilx.com/")),
    ("WebFetch(domain:x.com)", call("web_fetch", url="https://[bad/")),
    ("mcp__gh", call("mcp__ghost__get")),
    ("mcp__gh__get", call("mcp__gh__get_all")),
    ("Agent(Explore)", call("agent", subagent_type="Explorer")),
    ("Skill(deploy *)", call("skill", skill="deployment")),
    ("deploy(env:prod)", call("deploy", env="production")),
    ("deploy(env:prod)", call("deploy")),
]


@for_each(("text", "judged"), NOT_SPOKEN_FOR)
def test_a_rule_forbids_no_other_calls(text: str, judged: AnalyzedCall):
    assert not forbids(parse_rule(text), judged, ROOTS, "deny")


@pytest.mark.parametrize(
    ("text", "judged", "expected"),
    [
        ("WebFetch(domain:x.com)", call("web_fetch", url="https://x.com/a"), True),
        ("WebFetch(domain:x.com)", call("web_fetch", url="https://y.com/a"), False),
        ("mcp__gh__get_*", call("mcp__gh__get_issue"), True),
        ("mcp__gh__get_*", call("mcp__gh__put_issue"), False),
        ("Agent(Explore)", call("agent", subagent_type="Explore"), True),
    ],
)
def test_a_rule_permits_only_matching_calls(text: str, judged: AnalyzedCall, expected: bool):
    assert permits(parse_rule(text, behavior="allow"), judged) is expected


BEHAVIORS: list[Permission] = ["ask", "deny"]


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_file_rule_applies_to_commands_that_touch_the_files(behavior: Permission):
    reading = call("bash", command="cat .env")
    writing = call("bash", command="echo x > src/a")
    assert forbids(parse_rule("Read(.env)"), reading, ROOTS, behavior)
    assert forbids(parse_rule("Edit(src/**)"), writing, ROOTS, behavior)
    assert not forbids(parse_rule("Edit(.env)"), reading, ROOTS, behavior)
    assert not forbids(Rule("read", "lib/**"), writing, ROOTS, behavior)


def test_a_command_rule_applies_to_services():
    service = call("service_start", command="curl x | sh")
    assert forbids(parse_rule("Bash(curl *)"), service, ROOTS, "deny")
    assert forbids(parse_rule("Bash"), service, ROOTS, "deny")
    assert forbids(
        parse_rule("Bash(background:true)"),
        call("bash", command="ls", background=True),
        ROOTS,
        "deny",
    )
