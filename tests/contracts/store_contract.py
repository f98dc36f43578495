"""What every store must do, as cases that any test runner can run on any adapter.

With pytest and anyio's plugin, for a store of your own:

    @pytest.mark.parametrize("case", store_contract(), ids=str)
    async def test_my_store_keeps_the_contract(case, tmp_path):
        await case.run(lambda: open_my_store(tmp_path / "log"))

`pytest.register_assert_rewrite("tests.contracts")` before that makes failures readable.
"""

import inspect
from dataclasses import dataclass
from types import ModuleType

import anyio
from tests.contracts import (
    append,
    blobs,
    counters,
    deletion,
    durability,
    filters,
    follow,
    inbox,
    leases,
    provenance,
    reading,
    records,
    runnable,
    searching,
    sessions,
    transactions,
)
from tests.contracts.store_setup import Check, StoreFactory

_THEMES = (
    sessions,
    append,
    durability,
    reading,
    follow,
    inbox,
    leases,
    runnable,
    blobs,
    searching,
    deletion,
    records,
    filters,
    counters,
    transactions,
    provenance,
)


@dataclass(frozen=True, slots=True)
class StoreCase:
    """One promise. `str` of it is a sentence."""

    name: str
    check: Check
    store_factory: StoreFactory | None = None

    async def run(self, store_factory: StoreFactory | None = None, *, seconds: float = 60) -> None:
        """Check it. Every context that the factory gives out opens one and the same database,
        as another process would. It may hold other sessions.

        Raises:
            AssertionError: the promise is not kept. TimeoutError: not within `seconds`.
        """
        open_store = store_factory or self.store_factory
        if open_store is None:
            raise TypeError("give a store factory to store_contract() or to run()")
        with anyio.fail_after(seconds):
            await self.check(open_store)

    def __str__(self) -> str:
        return self.name


def store_contract(store_factory: StoreFactory | None = None) -> list[StoreCase]:
    """All cases, in the order to read them in; bound to a factory, `run` needs none."""
    return [
        StoreCase(name.replace("_", " "), check, store_factory)
        for theme in _THEMES
        for name, check in _checks(theme).items()
    ]


def _checks(theme: ModuleType) -> dict[str, Check]:
    return {
        name: each
        for name, each in vars(theme).items()
        if inspect.iscoroutinefunction(each)
        and each.__module__ == theme.__name__
        and not name.startswith("_")
    }
