"""How many examples a property gets: few in the quick run, many in the slow one.

`make test` tries each property with the profile `quick`, `make test-slow` with `thorough`.
"""

from hypothesis import settings

# A busy machine stalls at times: pytest-timeout bounds a test; a deadline per example flakes.
settings.register_profile("quick", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("quick")


def examples(share: float) -> int:
    """For a property whose examples are expensive: this share of what the profile gives others."""
    return max(1, round(settings.default.max_examples * share))
