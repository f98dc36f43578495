"""What holds whatever the call, the rules and the mode."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.permissions.cases import HOME, NOW, WORKSPACE, place

from mainspring.core.events import Permission
from mainspring.core.tool import SAFE_READ, Traits
from mainspring.harness.permissions.call_analysis import AnalyzedCall, analyze_call
from mainspring.harness.permissions.decide import decide
from mainspring.harness.permissions.grant_state import Grant, GrantState
from mainspring.harness.permissions.policy import MODES, Policy, PolicyRule

LENIENCY: dict[Permission, int] = {"deny": 0, "ask": 1, "allow": 2}

COMMANDS = [
    "ls", "cat a", "cat .env", "npm test", "npm run build && git push", "rm -rf /", "rm a",
    "echo x > a", "echo x > .git/config", "cp a /etc/b", "cat $X", 'ls "', "curl x | sh",
    "FOO=1 make", "",
]  # fmt: skip
PATHS = ["a", "src/a", ".env", ".git/config", "/etc/x", "~/x", "../x", "link", ""]
RULES = [
    "Bash", "Bash(ls *)", "Bash(npm *)", "Bash(npm test)", "Bash(git push *)", "Bash(cat *)",
    "Bash(rm *)", "Read", "Read(.env)", "Read(src/**)", "Read(//etc/**)", "Edit", "Edit(src/**)",
    "Edit(~/**)", "Write", "Edit(link)", "mcp__gh", "mcp__gh__get", "mcp__*", "*", "WebFetch",
    "WebFetch(domain:x.com)",
    "WebFetch(url:*secret*)", "Agent(Explore)", "Skill(x)", "deploy(env:prod)", "Read([a)",
    "!!", "",
]  # fmt: skip
LINKS = {f"{WORKSPACE}/link": "/etc/x"}


@st.composite
def calls(draw: st.DrawFn) -> AnalyzedCall:
    tool = draw(
        st.sampled_from(
            ["bash", "service_start", "read", "grep", "glob", "edit", "write", "web_fetch", "agent",
             "skill", "deploy", "ask_user", "task_list", "mcp__gh__get", "Bash"]
        )
    )  # fmt: skip
    inputs = st.fixed_dictionaries(
        {},
        optional={
            "command": st.sampled_from(COMMANDS),
            "file_path": st.sampled_from(PATHS),
            "path": st.sampled_from(PATHS),
            "pattern": st.sampled_from(["**/*.py", "/etc/*", "x"]),
            "url": st.sampled_from(["https://x.com/", "https://y.com/secret", "http://["]),
            "env": st.sampled_from(["prod", 3, None]),
            "subagent_type": st.just("Explore"),
            "skill": st.just("x"),
        },
    )
    traits = draw(st.sampled_from([Traits(), SAFE_READ]))
    return analyze_call(tool, draw(inputs), traits, place(LINKS))


def policy_rules(*behaviors: Permission) -> st.SearchStrategy[PolicyRule]:
    return st.builds(
        PolicyRule,
        text=st.sampled_from(RULES),
        behavior=st.sampled_from(behaviors),
        scope=st.sampled_from(["managed", "user", "project", "local"]),
        folder=st.just(WORKSPACE),
    )


POLICIES = st.builds(
    Policy,
    workspace=st.just(WORKSPACE),
    home=st.just(HOME),
    rules=st.lists(policy_rules("allow", "ask", "deny"), max_size=5).map(tuple),
    mode=st.sampled_from([None, *MODES]),
    directories=st.sampled_from([(), ("/etc",), (HOME,)]),
    sandbox_allows_bash=st.sampled_from([None, True]),
    bypass=st.sampled_from([None, "anywhere", "never"]),
)
STANDINGS = st.builds(
    GrantState,
    mode=st.sampled_from([None, None, *MODES]),
    rules=st.lists(policy_rules("allow", "ask", "deny"), max_size=2).map(tuple),
    grants=st.lists(policy_rules("allow"), max_size=2).map(
        lambda rules: {rule.text: Grant(id=rule.text, rules=(rule,)) for rule in rules}
    ),
    blocks=st.sampled_from([0, 20]),
)


def outcome(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool
) -> Permission:
    decision = decide(judged, policy, standing, now=NOW, is_sandboxed=is_sandboxed)
    assert decision.reason
    return decision.decision


@given(calls(), POLICIES, STANDINGS, st.booleans(), policy_rules("deny"))
def test_adding_a_deny_rule_never_allows_more(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool, rule: PolicyRule
):
    before = outcome(judged, policy, standing, is_sandboxed)
    for rules in ((*policy.rules, rule), (rule, *policy.rules)):
        after = outcome(judged, replace(policy, rules=rules), standing, is_sandboxed)
        assert LENIENCY[after] <= LENIENCY[before]


@given(calls(), POLICIES, STANDINGS, st.booleans(), policy_rules("ask"))
def test_adding_an_ask_rule_never_allows_more(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool, rule: PolicyRule
):
    before = outcome(judged, policy, standing, is_sandboxed)
    more = replace(policy, rules=(rule, *policy.rules))
    assert LENIENCY[outcome(judged, more, standing, is_sandboxed)] <= LENIENCY[before]


@given(calls(), POLICIES, STANDINGS, st.booleans())
def test_removing_allow_rules_never_allows_more(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool
):
    before = outcome(judged, policy, standing, is_sandboxed)
    kept = tuple(rule for rule in policy.rules if rule.behavior != "allow")
    after = outcome(judged, replace(policy, rules=kept), standing, is_sandboxed)
    assert LENIENCY[after] <= LENIENCY[before]


@given(calls(), POLICIES, STANDINGS, st.booleans())
def test_a_deny_all_rule_wins_whatever_the_mode_and_rules(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool
):
    everything = PolicyRule(text="*", behavior="deny", scope="user")
    for rules in ((*policy.rules, everything), (everything, *policy.rules)):
        assert outcome(judged, replace(policy, rules=rules), standing, is_sandboxed) == "deny"


@given(calls(), POLICIES, STANDINGS, st.booleans())
def test_expired_and_used_up_grants_allow_nothing(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool
):
    ended = {
        name: Grant(id=name, rules=grant.rules, expires_at=NOW - timedelta(seconds=1))
        for name, grant in standing.grants.items()
    }
    spent = {
        name: Grant(id=name, rules=grant.rules, max_uses=1, uses=1)
        for name, grant in standing.grants.items()
    }
    without = GrantState(mode=standing.mode, rules=standing.rules, blocks=standing.blocks)
    expected = outcome(judged, policy, without, is_sandboxed)
    for grants in (ended, spent):
        over = GrantState(
            mode=standing.mode, rules=standing.rules, blocks=standing.blocks, grants=grants
        )
        assert outcome(judged, policy, over, is_sandboxed) == expected


@given(
    st.text(max_size=20) | st.sampled_from(["bash", "read", "edit", "glob", "web_fetch", "skill"]),
    st.dictionaries(
        st.sampled_from(["command", "file_path", "path", "pattern", "url", "skill"]) | st.text(),
        st.text(max_size=60) | st.none() | st.integers() | st.lists(st.text(), max_size=2),
        max_size=4,
    ),
    st.lists(st.text(max_size=30), max_size=3),
    st.sampled_from(MODES),
)
def test_any_rules_and_input_are_decided_without_an_exception(
    tool: str, given: dict[str, object], texts: list[str], mode: str
):
    behaviors: tuple[Permission, ...] = ("allow", "ask", "deny")
    rules = tuple(PolicyRule(text=t, behavior=b) for t in texts for b in behaviors)
    policy = Policy(workspace=WORKSPACE, home=HOME, rules=rules)
    judged = analyze_call(tool, given, Traits(), place())
    standing = GrantState(mode=next(item for item in MODES if item == mode))
    assert outcome(judged, policy, standing, False) in LENIENCY


PROTECTED_PATHS = [".git/config", ".GIT/hooks/x", ".claude/settings.json", "sub/.cursor/mcp.json",
                   ".mise.toml", "tools/hook.sh", "tools/HOOK.sh"]  # fmt: skip


@st.composite
def protected_writes(draw: st.DrawFn) -> AnalyzedCall:
    path = draw(st.sampled_from(PROTECTED_PATHS))
    given: dict[str, dict[str, object]] = {
        "write": {"file_path": path, "content": ""},
        "edit": {"file_path": f"{WORKSPACE}/{path}"},
        "Write": {"file_path": f"a/../{path}"},
        "close_worktree": {"paths": ["a", path]},
        "bash": {"command": f"echo x | tee {path}"},
        "service_start": {"command": f"true && echo x > {path}"},
        "mcp__files__put": {"where": {"path": path}},
        "mcp__files__put_all": {"files": {path: "content"}},
        "mcp__files__put_line": {"path": f" {path}\n"},
        "mcp__files__put_around": {"path": f"a\nb\t/../{path}"},
        "mcp__files__put_url": {"uri": f"File:{WORKSPACE}/{path}".replace(".", "%2e")},
        "deploy": {"target": [f"file://{WORKSPACE}/{path}"]},
    }
    tool = draw(st.sampled_from(sorted(given)))
    return analyze_call(tool, given[tool], Traits(), place(LINKS))


@given(protected_writes(), POLICIES, STANDINGS, st.booleans())
def test_a_write_to_a_protected_path_is_never_allowed(
    judged: AnalyzedCall, policy: Policy, standing: GrantState, is_sandboxed: bool
):
    own = replace(policy, protected=(f"{WORKSPACE}/tools/hook.sh",))
    assert outcome(judged, own, standing, is_sandboxed) != "allow"


@given(st.sampled_from(PROTECTED_PATHS), st.sampled_from(["edit", "bash", "link"]))
def test_only_the_exact_unprotected_path_can_be_edited(path: str, way: str):
    other = f"{WORKSPACE}/other"
    by_link = analyze_call(
        "edit", {"file_path": "link"}, Traits(), place({f"{WORKSPACE}/link": other})
    )
    judged = {
        "edit": analyze_call("edit", {"file_path": path.upper()}, Traits(), place()),
        "bash": analyze_call("bash", {"command": f"echo x > {path}"}, Traits(), place()),
        "link": by_link,
    }[way]
    free = Policy(
        workspace=WORKSPACE,
        home=HOME,
        mode="bypassPermissions",
        protected=(other, f"{WORKSPACE}/tools/hook.sh"),
    )
    leave = GrantState(allowed_protected=frozenset((f"{WORKSPACE}/{path}", f"{WORKSPACE}/link")))
    assert outcome(judged, free, leave, True) == "ask"
    named = analyze_call("edit", {"file_path": path}, Traits(), place())
    assert outcome(named, free, leave, True) == "allow"
