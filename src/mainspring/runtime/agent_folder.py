"""An agent as a folder describes it: its instruction files, and `agent.yaml` if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TypeAlias, TypeVar, get_args

import yaml

from mainspring.core.errors import InvalidInput
from mainspring.core.model import Effort
from mainspring.harness.context.disk import Disk
from mainspring.harness.context.instructions import Places, load, render
from mainspring.harness.limits import Limits
from mainspring.runtime.agent import Agent

FILE = "agent.yaml"
_MAX_BYTES = 1_000_000
_EFFORTS: tuple[str, ...] = get_args(Effort)

T = TypeVar("T")
Node: TypeAlias = yaml.nodes.Node


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    agent: Agent
    """Its model is empty if the folder names none."""
    warnings: tuple[str, ...]
    is_described: bool
    """Whether anything was found there."""


def read_agent(folder: Path, *, name: str | None = None) -> AgentFolder:
    """Read a folder; `name` is what the agent is called if its file does not say.

    Raises:
        InvalidInput: there is no such folder, or its `agent.yaml` is wrong; it says in which line.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    place = PurePosixPath(folder.resolve())
    found = load(Disk(), Places(project=place, cwd=place))
    given = Agent(
        name=name or place.name or "agent",
        model="",
        instructions=render(found),
        built_ins=("*",),
    )
    file = folder / FILE
    if not file.is_file():
        return AgentFolder(agent=given, warnings=found.warnings, is_described=bool(found.sections))
    reader = _Reader(str(file))
    agent = reader.agent(given, _read(file))
    return AgentFolder(agent=agent, warnings=(*found.warnings, *reader.warnings), is_described=True)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise InvalidInput(f"{file}: longer than {_MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}: not UTF-8") from error


@dataclass(slots=True)
class _Reader:
    file: str
    warnings: list[str] = field(default_factory=list[str])
    key: str = "it"
    """What is being read."""

    def agent(self, given: Agent, text: str) -> Agent:
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise InvalidInput(f"{self.file}:{line}: not YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise InvalidInput(f"{self.file}: not YAML: {str(error).splitlines()[0]}") from error
        fields = {} if node is None else self.mapping(node)
        known: dict[str, Callable[[Node], object]] = {
            "name": self.string,
            "model": self.string,
            "effort": self.effort,
            "rules": self.strings,
            "tools": self.strings,
            "limits": self.limits,
            "instructions": self.string,
        }
        read = self.read(fields, known)
        if "tools" in read:
            read["built_ins"] = read.pop("tools")
        own = read.pop("instructions", None)
        if isinstance(own, str):
            read["instructions"] = "\n\n".join(filter(None, [given.instructions, own.strip()]))
        return replace(given, **read)

    def read(
        self, fields: Mapping[str, Node], known: Mapping[str, Callable[[Node], object]]
    ) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, node in fields.items():
            if key in known:
                self.key = key
                values[key] = known[key](node)
                continue
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            self.warnings.append(f"{self._at(node)}: {key} is not known and does nothing{hint}")
        return values

    def mapping(self, node: Node) -> dict[str, Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, "must be names with values")
        return {self.string(key): value for key, value in node.value}

    def string(self, node: Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            raise self._wrong(node, "must be text")
        return str(node.value)

    def strings(self, node: Node) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._wrong(node, "must be a list of texts")
        return tuple(self.string(item) for item in node.value)

    def effort(self, node: Node) -> str:
        effort = self.string(node)
        if effort not in _EFFORTS:
            raise self._wrong(node, f"must be one of {', '.join(_EFFORTS)}, not {effort}")
        return effort

    def limits(self, node: Node) -> Limits:
        counts = ("max_turns", "max_input_tokens", "max_output_tokens", "max_tool_calls")
        known: dict[str, Callable[[Node], object]] = {
            **dict.fromkeys((*counts, "target_tokens"), self._number(int, "a whole number")),
            "max_seconds": self._number(float, "a number of seconds"),
            "max_cost_usd": self._number(Decimal, "an amount in US dollars"),
        }
        return Limits(**self.read(self.mapping(node), known))  # pyright: ignore[reportArgumentType] (as above)

    def _number(self, kind: Callable[[str], T], what: str) -> Callable[[Node], T]:
        def read(node: Node) -> T:
            text = self.string(node)
            try:
                value = kind(text)
                is_positive = Decimal(text).is_finite() and Decimal(text) > 0
            except (ValueError, InvalidOperation) as error:
                raise self._wrong(node, f"must be {what}, not {text!r}") from error
            if not is_positive:
                raise self._wrong(node, f"must be {what} above 0, not {text}")
            return value

        return read

    def _wrong(self, node: Node, what: str) -> InvalidInput:
        return InvalidInput(f"{self._at(node)}: {self.key} {what}")

    def _at(self, node: Node) -> str:
        return f"{self.file}:{node.start_mark.line + 1}"
