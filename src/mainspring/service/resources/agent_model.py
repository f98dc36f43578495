"""The model of an agent: its id and how it is asked."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core import ids

ModelId = Annotated[ids.ModelId, Meta(min_length=1, max_length=256)]
EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
Speed: TypeAlias = Literal["standard", "fast"]
Geo = Annotated[str, Meta(min_length=1, max_length=64)]


class Effort(Struct, frozen=True, kw_only=True):
    type: EffortLevel


class ModelConfig(Struct, frozen=True, kw_only=True):
    id: str
    effort: Effort | None = None
    """`None`: the model's own."""
    inference_geo: str | None = None
    speed: Speed | None = None


class ModelConfigParams(Struct, frozen=True, kw_only=True):
    id: ModelId
    effort: EffortLevel | Effort | UnsetType | None = UNSET
    inference_geo: Geo | None = None
    speed: Speed | None = None


ModelParams: TypeAlias = ModelId | ModelConfigParams


def resolve_model(asked: ModelParams, known: ModelConfig | None = None) -> ModelConfig:
    """All of it is replaced, but for an effort that is not named: that stays as it was."""
    if isinstance(asked, str):
        asked = ModelConfigParams(id=asked)
    effort = asked.effort
    if isinstance(effort, UnsetType):
        effort = None if known is None else known.effort
    elif isinstance(effort, str):
        effort = Effort(type=effort)
    return ModelConfig(
        id=asked.id,
        effort=effort,
        inference_geo=asked.inference_geo,
        speed=asked.speed or "standard",
    )
