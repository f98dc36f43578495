"""Modules that are imported on first use, to keep start-up fast."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class LazyModule(ModuleType):
    """A proxy for a module; also import the module under `TYPE_CHECKING` for its types."""

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)
