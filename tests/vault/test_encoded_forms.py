"""Known values in content: found in every encoding, wherever the content is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vault.encoded import ENCODINGS, SINGLE, Encoding

from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.vault.known_values import KnownValues
from mainspring.core.ports import Credential

VALUES = (
    'gh"real/secret+value=123',
    "plain words of a vault 4711",
    "grüße_an & alle=€😀",
    "back\\slash%41 & more",
)
PLACEHOLDERS = Placeholders([Credential(name=i, value=i, hosts=()) for i in VALUES], KnownValues)
TOKENS = {name: token.encode() for name, token in PLACEHOLDERS.environment(VALUES).items()}


def clean_in_chunks(content: bytes, cuts: list[int]) -> bytes:
    cleaner = PLACEHOLDERS.cleaner()
    places = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    pieces = [cleaner.feed(content[one:other]) for one, other in pairwise(places)]
    return b"".join((*pieces, cleaner.end()))


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_found_in_every_encoding(value: str):
    for name, encode in ENCODINGS.items():
        check_found(name, encode, value)


def check_found(name: str, encode: Encoding, value: str) -> None:
    written = encode(value.encode())
    clean = PLACEHOLDERS.clean(b"<a>\n" + written + b"\n</a>")
    assert TOKENS[value] in clean, name
    left = [written[at : at + 12 + len(written) // 20] for at in range(8, len(written) * 2 // 3)]
    assert [item for item in left if item in clean and b"." not in item] == [], name
    if value == VALUES[0]:
        cuts = list(range(0, len(written), 11))
        assert clean_in_chunks(written, cuts) == PLACEHOLDERS.clean(written), name


@given(
    st.lists(
        st.tuples(st.sampled_from(list(SINGLE.values())), st.sampled_from(VALUES)).map(
            lambda pair: pair[0](pair[1].encode())
        )
        | st.text('gh"re%&#=\\u4x1; \n').map(str.encode)
        | st.binary(max_size=20),
        max_size=4,
    ).map(b"".join),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_cleaning_does_not_depend_on_chunking(content: bytes, cuts: list[int]):
    assert clean_in_chunks(content, cuts) == PLACEHOLDERS.clean(content)


def test_content_without_a_value_is_passed_on_at_once():
    cleaner = PLACEHOLDERS.cleaner()
    for event in (b"data: gh\n\n", b'data: {"a": "%\\u0041"}\r\n\r\n', b"<p>top &amp; down</p>"):
        assert cleaner.feed(event) == event


def test_only_a_bounded_part_of_endless_content_is_held_back():
    cleaner = PLACEHOLDERS.cleaner()
    size = sum(len(cleaner.feed(b'gh"real/' + b" " * 9_999)) for _ in range(20))
    assert 20 * 10_007 - size < 40_000
