"""The rule that "always allow" would add allows the call, can be written, and is narrow."""

import pytest
from msgspec.structs import replace
from tests.permissions.cases import HOME, WORKSPACE, call, decided, rules
from tests.row_checks import for_each

from mainspring.harness.permissions.always_allow import always_allow_rule, rule_update
from mainspring.harness.permissions.call_analysis import AnalyzedCall
from mainspring.harness.permissions.grant_state import check_updates
from mainspring.harness.permissions.rule import rule_text


@for_each(
    ("judged", "rule"),
    [
        (call("bash", command="npm test"), None),
        (call("edit", file_path=f"{WORKSPACE}/src/a.py"), f"Edit(/{WORKSPACE}/src/**)"),
        (call("write", file_path=f"{WORKSPACE}/a[1]/*/b"), rf"Edit(/{WORKSPACE}/a\[1]/\*/**)"),
        (call("read", file_path=f"{HOME}/notes/a"), f"Read(/{HOME}/notes/**)"),
        (call("grep", path=f"{HOME}/notes", pattern="x"), f"Read(/{HOME}/notes/**)"),
        (call("web_fetch", url="https://x.com:8080/a"), "WebFetch(domain:x.com)"),
        (call("web_search", query="x"), "WebSearch"),
        (call("mcp__gh__get"), "mcp__gh__get"),
    ],
)
def test_the_offered_rule_allows_the_call(judged: AnalyzedCall, rule: str | None):
    offered = always_allow_rule(judged.tool, judged.input)
    assert offered is not None
    assert rule in (None, rule_text(offered))
    check_updates((rule_update(offered),))
    policy = replace(rules(allow=(rule_text(offered),)), workspace=f"{WORKSPACE}/elsewhere")
    assert decided(judged, policy).gate == "rule"


@pytest.mark.parametrize(
    "judged",
    [
        call("read", file_path="/x"),
        call("grep", path="/", pattern="x"),
        call("edit"),
        call("web_fetch", url="http://["),
        call("web_fetch", url="http://[::1]/"),
        call("web_fetch", url="x"),
        call("bash", command='ls "'),
    ],
)
def test_no_rule_is_offered_if_none_would_be_narrow(judged: AnalyzedCall):
    assert always_allow_rule(judged.tool, judged.input) is None
