"""The rule that "always allow" would add allows the call, can be written, and is narrow."""

import pytest
from msgspec.structs import replace
from tests.permissions.cases import HOME, WORKSPACE, call, decided, rules

from mainspring.harness.permissions.always import always, update_of
from mainspring.harness.permissions.judged import Judged
from mainspring.harness.permissions.rules import written
from mainspring.harness.permissions.standing import check_updates


@pytest.mark.parametrize(
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
    ids=lambda each: each.tool if isinstance(each, Judged) else "",
)
def test_the_rule_that_is_offered_allows_the_call(judged: Judged, rule: str | None):
    offered = always(judged.tool, judged.input)
    assert offered is not None
    assert rule in (None, written(offered))
    check_updates((update_of(offered),))
    policy = replace(rules(allow=(written(offered),)), workspace=f"{WORKSPACE}/elsewhere")
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
def test_no_rule_is_offered_where_none_would_be_narrow(judged: Judged):
    assert always(judged.tool, judged.input) is None
