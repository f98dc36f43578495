"""The API types of dreams."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import DreamScore, Usage
from mainspring.core.ids import MemoryStoreId, ModelId, SessionId
from mainspring.service.sessions.session_record import ListCostBudget

MAX_SESSIONS = 100  # the Managed Agents API's own limit
ROLLED_BACK = "rolled_back"
"""The error type of a dream whose changes the suite rejected."""
DreamState: TypeAlias = Literal["pending", "running", "completed", "failed", "canceled"]
ENDED: frozenset[DreamState] = frozenset(("completed", "failed", "canceled"))


class StoreInput(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_store"):
    memory_store_id: MemoryStoreId


class SessionsInput(Struct, frozen=True, kw_only=True, tag_field="type", tag="sessions"):
    session_ids: Annotated[tuple[SessionId, ...], Meta(min_length=1, max_length=MAX_SESSIONS)]


DreamInput: TypeAlias = StoreInput | SessionsInput


class CreateNew(Struct, frozen=True, kw_only=True, tag_field="type", tag="create_new"):
    """The result is a new memory store, which starts as a copy of the input."""


class UpdateExisting(Struct, frozen=True, kw_only=True, tag_field="type", tag="update_existing"):
    memory_store_id: MemoryStoreId


OutputBehavior: TypeAlias = CreateNew | UpdateExisting


Model = Annotated[ModelId, Meta(min_length=1, max_length=256)]


class DreamModel(Struct, frozen=True, kw_only=True):
    id: Model
    speed: Literal["standard"] | None = None


class DreamOutput(Struct, frozen=True, kw_only=True, tag_field="type", tag="memory_store"):
    memory_store_id: str


class DreamError(Struct, frozen=True, kw_only=True):
    type: str
    message: str


class DreamObject(Struct, frozen=True, kw_only=True):
    id: str
    created_at: datetime
    inputs: tuple[DreamInput, ...]
    model: DreamModel
    output_behavior: OutputBehavior
    status: DreamState = "pending"
    outputs: tuple[DreamOutput, ...] = ()
    usage: Usage = Usage()
    instructions: str | None = None
    session_id: str | None = None
    ended_at: datetime | None = None
    archived_at: datetime | None = None
    error: DreamError | None = None
    suite: str | None = None
    """An extension: the suite that tests the changes."""
    suite_budget: ListCostBudget | None = None
    score: DreamScore | None = None
    type: Literal["dream"] = "dream"

    @property
    def store_id(self) -> str:
        return next(item.memory_store_id for item in self.inputs if isinstance(item, StoreInput))

    @property
    def session_ids(self) -> tuple[str, ...]:
        return next(item.session_ids for item in self.inputs if isinstance(item, SessionsInput))


class CreateDream(Struct, frozen=True, kw_only=True):
    inputs: Annotated[tuple[DreamInput, ...], Meta(max_length=2)]
    model: Model | DreamModel
    instructions: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None
    output_behavior: OutputBehavior = CreateNew()
    suite: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """An extension: tests the changes with a suite of the folder that the service runs in; if they
    do worse, nothing is written."""
    suite_budget: ListCostBudget | None = None
    """The maximum cost of each of the two runs of the suite."""

    def checked_inputs(self) -> tuple[StoreInput, SessionsInput]:
        """Raises: InvalidInput."""
        stores = [item for item in self.inputs if isinstance(item, StoreInput)]
        sessions = [item for item in self.inputs if isinstance(item, SessionsInput)]
        if len(stores) != 1 or len(sessions) != 1:
            raise InvalidInput("inputs: must have exactly one memory_store and one sessions")
        ids = sessions[0].session_ids
        if len(set(ids)) != len(ids):
            raise InvalidInput("inputs: session_ids must not repeat")
        behavior = self.output_behavior
        output_store = getattr(behavior, "memory_store_id", stores[0].memory_store_id)
        if output_store != stores[0].memory_store_id:
            raise InvalidInput("output_behavior: must name the memory store of the inputs")
        return stores[0], SessionsInput(session_ids=tuple(sorted(ids)))
