"""Conditions against a small reference evaluator."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.references import (
    NodeOutput,
    Reference,
    condition_holds,
    output_value,
    parse_atom,
    split_condition,
)

WORDS = st.text(alphabet='ab1 &|=<>$()."\\\n%`-;é', max_size=8)
NUMBERS = st.one_of(st.integers(-99, 99).map(str), st.sampled_from(["1.5", "0", "-0.5"]))
FIELDS = {"a": "x", "n": "7", "m": "1.5", "b": "true", "e": ""}


@dataclass(frozen=True)
class Comparison:
    name: str
    operator: str
    literal: str
    is_quoted: bool

    def __str__(self) -> str:
        literal = f"'{self.literal}'" if self.is_quoted else self.literal
        return f"$node.output.{self.name} {self.operator} {literal}"

    def value(self) -> bool | None:
        """`None`: it cannot be decided."""
        actual = FIELDS[self.name]
        if self.operator in ("==", "!="):
            return (actual == self.literal) == (self.operator == "==")
        left, right = leading_number(actual), leading_number(self.literal)
        if left is None or right is None:
            return None
        return {
            "<": left < right,
            ">": left > right,
            "<=": left <= right,
            ">=": left >= right,
        }[self.operator]


def leading_number(text: str) -> float | None:
    """As JavaScript's parseFloat."""
    stripped = text.strip()
    for end in range(len(stripped), 0, -1):
        part = stripped[:end]
        try:
            if not set(part) <= set("+-0123456789.eE"):
                continue
            return float(part)
        except ValueError:
            continue
    return None


def expected(clauses: list[list[Comparison]]) -> bool:
    for clause in clauses:
        holds = True
        for comparison in clause:
            value = comparison.value()
            if value is None:
                return False
            if not value:
                holds = False
                break
        if holds:
            return True
    return False


COMPARISONS = st.one_of(
    st.builds(
        Comparison,
        name=st.sampled_from(sorted(FIELDS)),
        operator=st.sampled_from(["==", "!=", "<", ">", "<=", ">="]),
        literal=WORDS,
        is_quoted=st.just(True),
    ),
    st.builds(
        Comparison,
        name=st.sampled_from(sorted(FIELDS)),
        operator=st.sampled_from(["==", "!=", "<", ">", "<=", ">="]),
        literal=NUMBERS,
        is_quoted=st.booleans(),
    ),
)


def value_of(reference: Reference) -> object:
    output = NodeOutput(status="completed", structured=FIELDS)
    return output_value(reference.node or "", output, reference.field)


@given(st.lists(st.lists(COMPARISONS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_condition_means_what_the_reference_says(clauses: list[list[Comparison]]):
    text = " || ".join(" && ".join(map(str, clause)) for clause in clauses)
    assert condition_holds(text, value_of) == expected(clauses)


@given(st.text(alphabet="$node.output.a =='x'<>!&|()1+[]", max_size=40))
def test_a_text_that_is_no_comparison_is_false(text: str):
    """Whatever it is, it is parsed and never run."""
    try:
        holds = condition_holds(text, value_of)
    except InvalidInput:
        return
    if holds:
        atoms = [atom for clause in split_condition(text) for atom in clause]
        assert any(parse_atom(atom) is not None for atom in atoms)
