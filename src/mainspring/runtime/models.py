"""Where models come from; wiring knows the providers, we do not."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from mainspring.core.catalog import ModelFacts
from mainspring.core.events import Usage
from mainspring.core.model import Model


class Models(Protocol):
    def open(self, name: str) -> Model: ...

    def put(self, name: str, model: Model) -> None: ...

    def resolve(self, name: str) -> str: ...

    def facts(self, name: str) -> ModelFacts: ...

    def cost(self, name: str, usage: Usage) -> Decimal: ...

    def related(self, wanted: str, to: str) -> str:
        """What `sonnet`, `small` or a full name means to a user of the model `to`; `to` itself, if
        there is no such model to be had."""
        ...
