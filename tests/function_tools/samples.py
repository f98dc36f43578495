"""Types and calls that the tests of tools share."""

import dataclasses
from enum import Enum
from typing import Generic, NotRequired, TypedDict, TypeVar

import anyio
import msgspec
from pydantic import BaseModel

from mainspring.core.content import plain_text
from mainspring.core.tool import Call, Tool

A = TypeVar("A")
B = TypeVar("B")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Line:
    start: Point
    ends: list[Point]


class Options(TypedDict):
    deep: bool
    depth: NotRequired[int]


class Box(msgspec.Struct, Generic[A, B]):
    first: A
    second: B


class Leaf(BaseModel):
    size: int


class Tree(BaseModel):
    leaves: list[Leaf]


def call(**arguments: object) -> Call:
    return Call(
        id="call_1",
        name="any",
        input=arguments,
        idempotency_key="key_1",
        session_id="sesn_1",
        thread_id="sthr_1",
    )


async def text_of(made: Tool, **arguments: object) -> str:
    with anyio.fail_after(60):
        outcome = await made.run(call(**arguments))
    assert outcome.ok, outcome
    return plain_text(outcome.content)


async def failure_of(made: Tool, **arguments: object) -> str:
    with anyio.fail_after(60):
        outcome = await made.run(call(**arguments))
    assert not outcome.ok
    return plain_text(outcome.content)
