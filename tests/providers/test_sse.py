from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.capabilities.providers.sse_decoder import EventTooLarge, SseDecoder

STREAM = (
    'event: a\ndata: {"x": "żółć 🦊"}\n\n: comment\ndata:two\ndata: lines\nid: 7\n\ndata: 3\n\n'
).encode()
EVENTS = ['{"x": "żółć 🦊"}'.encode(), b"two\nlines", b"3"]


def split(chunks: list[bytes], **limits: int) -> list[bytes]:
    splitter = SseDecoder(**limits)
    return [event for chunk in chunks for event in splitter.feed(chunk)] + splitter.end()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.integers(0, 10_000)), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_the_events_do_not_depend_on_chunking(places: list[int], line_end: bytes):
    assert split(cut(STREAM.replace(b"\n", line_end), places)) == EVENTS


def test_single_byte_chunks_give_the_same_events():
    assert split([bytes([byte]) for byte in STREAM]) == EVENTS


def test_a_byte_order_mark_is_not_part_of_the_first_field():
    assert split([b"\xef\xbb", b"\xbfdata: x\n\n"]) == [b"x"]


def test_an_event_without_an_empty_line_counts_and_a_truncated_line_does_not():
    assert split([b"data: 1\n"]) == [b"1"]
    assert split([b"data: 1\n\ndata: 2"]) == [b"1"]


def test_comments_are_not_events():
    assert split([b": ping\n\n", b":\n\n\n\n"]) == []


def test_ten_megabytes_in_one_line_are_one_event():
    line = b"x" * 10_000_000
    chunks = [b"data: ", *(line[at : at + 65_536] for at in range(0, len(line), 65_536)), b"\n\n"]
    assert split(chunks) == [line]


@pytest.mark.parametrize("chunk", [b"x" * 60, b"\ndata: " + b"y" * 53])
def test_an_oversized_event_is_refused_while_it_is_being_received(chunk: bytes):
    with pytest.raises(EventTooLarge, match="at most 1000"):
        split([b"data: ", *[chunk] * 20], max_event_bytes=1000)
