"""What a skill's text becomes when it is called with something."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.substitution import SkillFacts, SkillSubstitution, substitute_facts

FACTS = SkillFacts(session_id="sesn_1", project="/work/shop", effort="high")


def substitute_arguments(body: str, arguments: str, skill: Skill, facts: SkillFacts) -> str:
    substitution = SkillSubstitution(arguments, skill, facts)
    return substitution.fill(body) + substitution.unused_arguments()


def skill(*arguments: str) -> Skill:
    return Skill(
        name="deploy",
        description="Deploys.",
        file="/skills/deploy/SKILL.md",
        folder="/skills/deploy",
        hash="0",
        arguments=arguments,
    )


@for_each(
    ("body", "arguments", "becomes"),
    [
        ("Deploy $ARGUMENTS now", 'staging "two words"', 'Deploy staging "two words" now'),
        ("$0 then $1", 'staging "two words"', "staging then two words"),
        ("$ARGUMENTS[1]/$ARGUMENTS[0]", "a b", "b/a"),
        ("$ARGUMENTS[x]", "a", "a[x]"),
        ("$0 of $1", "one", "one of $1"),  # what was not given stays
        ("$env, $where.", "prod eu", "prod, eu."),
        ("[$env] [$where]", "prod", "[prod] []"),  # a name that got nothing is empty
        ("$environment", "prod", "$environment\n\nARGUMENTS: prod"),
        ("$ARGUMENTS_DIR $0x", "a", "$ARGUMENTS_DIR $0x\n\nARGUMENTS: a"),
        ("It costs \\$1.00, $0", "a", "It costs $1.00, a"),
        ("\\\\$0", "a", "\\\\a"),  # two backslashes are no escape
        ("\\$HOME", "", "\\$HOME"),
        ("Say it's $0", "it's fine", "Say it's it's"),  # a quote that is not closed
        ("No place", "a b", "No place\n\nARGUMENTS: a b"),
        ("No place", "  ", "No place"),
        ("$0", "$1 \\$0 $ARGUMENTS", "$1"),  # nothing that is put in is read again
        ("$ARGUMENTS", "${CLAUDE_SESSION_ID}", "${CLAUDE_SESSION_ID}"),
        ("${CLAUDE_SESSION_ID} ${MAINSPRING_SESSION_ID}", "", "sesn_1 sesn_1"),
        ("${CLAUDE_SKILL_DIR}/x ${CLAUDE_PROJECT_DIR}", "", "/skills/deploy/x /work/shop"),
        ("\\${CLAUDE_EFFORT} ${CLAUDE_OTHER}", "", "\\high ${CLAUDE_OTHER}"),
    ],
)
def test_placeholders_are_substituted(body: str, arguments: str, becomes: str):
    assert substitute_arguments(body, arguments, skill("env", "where"), FACTS) == becomes


def test_rules_get_the_skill_folder_but_no_arguments():
    rule = substitute_facts("Bash(${CLAUDE_SKILL_DIR}/run.sh $0 *)", skill(), FACTS)
    assert rule == "Bash(/skills/deploy/run.sh $0 *)"


@settings(max_examples=50)
@given(st.text(alphabet="$0129A[]\\ a", max_size=40), st.text(max_size=40))
def test_unused_arguments_are_appended(body: str, arguments: str):
    text = substitute_arguments(body, arguments, skill(), FACTS)
    assert not arguments.strip() or text.endswith(f"ARGUMENTS: {arguments.strip()}") or "$" in body


@settings(max_examples=50)
@given(st.text(max_size=60).filter(lambda text: "$" not in text), st.text(max_size=20))
def test_text_without_placeholders_is_unchanged(body: str, arguments: str):
    assert substitute_arguments(body, arguments, skill("env"), FACTS).startswith(body)


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_arguments_are_substituted_as_typed(arguments: str):
    text = substitute_arguments("<$ARGUMENTS>", arguments, skill("env"), FACTS)
    assert text == f"<{arguments.strip()}>"


@pytest.mark.parametrize("hostile", ["\\" * 200_000, "$ARGUMENTS[" * 20_000, "$" * 200_000])
def test_hostile_text_is_substituted_in_bounded_time(hostile: str):
    assert len(substitute_arguments(hostile, "a", skill("env"), FACTS)) > 10_000
