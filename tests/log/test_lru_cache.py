"""What is kept of what was used last."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.log.lru_cache import LruCache


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))), st.integers(1, 4))
def test_the_cache_keeps_the_most_recently_used_items(uses: list[tuple[bool, int]], most: int):
    latest: LruCache[int, int] = LruCache(most)
    order: list[int] = []
    for is_put, key in uses:
        if is_put:
            latest.put(key, -key)
        elif latest.get(key) is None:
            continue
        order = [*(item for item in order if item != key), key][-most:]
    assert [key for key in range(10) if key in latest] == sorted(order)
    assert len(latest) == len(order)
    assert all(latest.get(key) == -key for key in order)
    assert latest.pop(10) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=12))))
def test_the_sizes_of_all_values_stay_within_the_capacity(puts: list[tuple[int, bytes]]):
    cache: LruCache[int, bytes] = LruCache(10, size_of=len)
    for key, value in puts:
        cache.put(key, value)
        assert cache.get(key) == (value if len(value) <= 10 else None)
        assert sum(len(cache.get(item) or b"") for item in range(10)) <= 10
        cache.get(key)
