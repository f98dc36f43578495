"""Modules that are imported on first use, to keep start-up fast."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class LazyModule(ModuleType):
    """Stands for a module; import it under `TYPE_CHECKING` too, so that its types are known."""

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)
