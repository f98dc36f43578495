"""An agent: its instructions, tools, skills, subagents and limits. It is only a value; `Runtime`
runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from mainspring.core.errors import InvalidInput
from mainspring.core.model import Effort, ToolSpec
from mainspring.core.tool import Tool
from mainspring.function_tools.define import FunctionTool, tool
from mainspring.function_tools.output_types import OutputType, output_type_of
from mainspring.harness.answer_checks import Check
from mainspring.harness.context.prompts import system_prompt
from mainspring.harness.context.request_builder import PromptPrefix, sorted_specs
from mainspring.harness.function_hooks import FunctionHook
from mainspring.harness.limits import Limits
from mainspring.runtime.mcp_server import McpServerTools
from mainspring.runtime.memory.memory_mode import MemoryLearning, MemoryMode
from mainspring.runtime.skills.catalogue import render_catalogue
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import StandaloneParts, Subagent

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Output = DefaultTypeVar("Output", covariant=True, default=str)  # noqa: PLC0105
else:
    # before Python 3.13, a TypeVar cannot have a default at run time
    Output = TypeVar("Output", covariant=True)  # noqa: PLC0105

AnyAgent: TypeAlias = "Agent[Any]"  # whatever its output type is
ToolFunction: TypeAlias = Callable[..., object]

V = TypeVar("V")
S = TypeVar("S")


class ConvertedField(Generic[V, S]):
    """A field of an agent that accepts more types than it stores."""

    def __init__(self, convert: Callable[[V], S], default: V) -> None:
        self._convert = convert
        self._default = convert(default)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> S:
        return self._default if instance is None else vars(instance)[self._name]

    def __set__(self, instance: object, value: V) -> None:
        vars(instance)[self._name] = self._convert(value)


def _as_tools(tools: Sequence[Tool | ToolFunction]) -> Sequence[Tool]:
    """Convert functions to tools, like `@tool`."""
    return tuple(item if isinstance(item, Tool) else tool(item) for item in tools)


def _as_subagents(agents: Sequence[Subagent | AnyAgent]) -> Sequence[Subagent]:
    return tuple(item if isinstance(item, Subagent) else AgentSubagent.of(item) for item in agents)


@dataclass(frozen=True, kw_only=True)
class Agent(Generic[Output]):
    name: str = "assistant"
    description: str = ""
    """For people; the model does not see it."""
    instructions: str = ""
    model: str = "default"
    """`provider:name`, or several in order of preference, separated by commas. `default` is the
    value of MAINSPRING_MODEL, else a provider that has a key, else the offline model."""
    tools: ConvertedField[Sequence[Tool | ToolFunction], Sequence[Tool]] = ConvertedField(
        _as_tools, ()
    )
    """Functions with type hints and a docstring, or tools made with `@tool`."""
    built_ins: Sequence[str] = ()
    """Names of the built-in tools that it may use, or `*` for all of them. They work in the
    workspace and its sandbox, under its permission rules."""
    client_tools: Sequence[ToolSpec] = ()
    """Tools that the caller runs: the session waits for `Session.settle`."""
    limits: Limits = field(default_factory=Limits)
    effort: Effort = "none"
    rules: Sequence[str] = ()
    """Rules that always apply; compaction never removes them."""
    subagents: ConvertedField[Sequence[Subagent | AnyAgent], Sequence[Subagent]] = ConvertedField(
        _as_subagents, ()
    )
    """The agents that it may call, each on its own thread."""
    handoffs: ConvertedField[Sequence[AnyAgent], Sequence[Subagent]] = ConvertedField(
        _as_subagents, ()
    )
    """The agents that it may hand its conversation to; they continue with the whole history."""
    max_depth: int = 2
    """How deeply subagents may call other subagents."""
    max_at_once: int = 20
    """How many subagents may run at the same time in a session, at any depth."""
    has_one_model: bool = False
    """Its subagents always use its model, even if a call or a definition names another."""
    is_coordinator: bool = False
    """It only calls subagents, sends them messages and stops them."""
    skills: Sequence[Skill] = ()
    """The skills that it or its user can use."""
    output_type: type[Output] | Sequence[type[Output]] = cast("type[Output]", str)  # noqa: RUF009 (a constant)
    """The type of a run's output: text, or any type with a JSON form. Several are alternatives."""
    output_retries: int = 2
    """How often the model is asked again for an output that is missing or invalid."""
    hooks: Sequence[FunctionHook] = ()
    """Hooks and guardrails that are Python functions; see `mainspring.hooks`."""
    checks: Sequence[Check] = ()
    """Checks of its answer: values of `AnswerCheck`, and functions that return the problem with an
    answer. An answer that fails is sent back at most twice, then returned with a flag."""
    require_evidence: Sequence[str] = ()
    """Commands that must have succeeded after its last edit before it may end."""
    folder: Path | None = None
    """The folder that describes it, whose permission rules and hooks apply."""
    mcp_toolsets: Sequence[McpServerTools] = ()
    """Which tools of the MCP servers in `RunOptions.servers` it may use."""
    memory: MemoryMode = "on"
    """Whether its sessions read and write memories. Subagents have only those that their own file
    gives them."""
    learning: MemoryLearning = MemoryLearning()  # noqa: RUF009 (immutable)
    """Who writes what a session teaches: rules, also a model, or nobody."""
    resources: Sequence[str] = ()
    """Resources of MCP servers, as `server:uri`, that it reads with the first message."""
    input_schema: Mapping[str, object] | None = None
    """The JSON Schema of its input as a tool of `mainspring mcp serve`; without it, the input is a
    message."""
    version: str | None = None
    """The version of the folder that describes it, if any: a session keeps the version that it
    began with."""

    folder_reader: ClassVar[Callable[[Path], Agent[str]] | None] = None
    """Reads a folder. `mainspring` sets it, because the user's settings apply to the folder."""

    @classmethod
    def from_folder(cls, folder: str | Path) -> Agent[str]:
        """The agent that a folder describes, as `mainspring run` reads it. Change it with
        `dataclasses.replace`.

        Raises:
            InvalidInput: there is no such folder, or it describes no agent.
        """
        if cls.folder_reader is None:
            raise InvalidInput("use `from mainspring import Agent` to read folders")
        return cls.folder_reader(Path(folder))

    def __post_init__(self) -> None:
        output_type_of(self.output_type)
        for item in self.handoffs:
            if isinstance(item, AgentSubagent) and item.agent.output_type != self.output_type:
                raise InvalidInput(
                    f"{self.name} cannot hand off to {item.name}: their output types differ"
                )

    @property
    def output(self) -> OutputType | None:
        """Its output type, if that is not text."""
        return output_type_of(self.output_type)

    @property
    def needs_workspace(self) -> bool:
        """Whether it, or one of its subagents, works in a folder."""
        parts = (subagent.own for subagent in self.subagents)
        return bool(self.built_ins) or any(own is not None and own.built_ins for own in parts)


class AgentSubagent(Subagent, frozen=True, kw_only=True):
    """A subagent that is a Python agent, with tools and hooks that are code."""

    agent: Any = None  # an Agent; a struct cannot refer to a type that is defined with it

    @classmethod
    def of(cls, agent: AnyAgent) -> AgentSubagent:
        if not agent.description:
            raise InvalidInput(
                f"agent {agent.name} needs a description, by which other agents decide to call it"
            )
        limits = agent.limits
        cost = limits.max_cost_usd
        return cls(
            name=agent.name,
            description=agent.description,
            prompt=agent.instructions,
            model=None if agent.model == "default" else agent.model,
            effort=None if agent.effort == "none" else agent.effort,
            max_turns=limits.max_turns,
            max_cost_usd=None if cost is None else str(cost),
            reads_instructions=False,
            own=StandaloneParts(
                built_ins=tuple(agent.built_ins),
                client_tools=tuple(agent.client_tools),
                skills=tuple(agent.skills),
            ),
            agent=agent,
        )


def check_deps(agent: AnyAgent, deps: object) -> None:
    """Check the dependencies of an agent's tools, and of agents that it may call or hand off to.

    Raises:
        InvalidInput: a tool needs `deps` of another type.
    """
    for item in agent.tools:
        kind = item.deps_type if isinstance(item, FunctionTool) else object
        if isinstance(kind, type) and not _is_instance(deps, kind):
            raise InvalidInput(
                f"tool {item.spec.name} needs deps of type {kind.__name__}, not"
                f" {type(deps).__name__}: pass deps= to the run"
            )
    for item in (*agent.subagents, *agent.handoffs):
        if isinstance(item, AgentSubagent):
            check_deps(item.agent, deps)


def _is_instance(deps: object, kind: type) -> bool:
    try:
        return isinstance(deps, kind)
    except TypeError:  # a protocol that is not checked at run time
        return True


def prefix_of(agent: AnyAgent, tools: Iterable[ToolSpec], *, environment: str = "") -> PromptPrefix:
    """The part of every request before the messages."""
    return PromptPrefix(
        model=agent.model,
        system=system_prompt(
            instructions=agent.instructions,
            rules=agent.rules,
            skills="" if agent.is_coordinator else render_catalogue(agent.skills),
            environment=environment,
        ),
        tools=sorted_specs(tools),
        effort=agent.effort,
    )


def tools_of(agent: AnyAgent, *built_in: Tool) -> dict[str, Tool]:
    """The agent's own tools and the built-in ones, by name.

    Raises:
        InvalidInput: two of them have the same name.
    """
    tools: dict[str, Tool] = {}
    for item in (*agent.tools, *built_in):
        if item.spec.name in tools:
            raise InvalidInput(f"{agent.name} has two tools called {item.spec.name!r}")
        tools[item.spec.name] = item
    if duplicates := sorted(spec.name for spec in agent.client_tools if spec.name in tools):
        raise InvalidInput(f"{agent.name} has two tools called {duplicates[0]!r}")
    return tools


def skill_folders(agent: AnyAgent) -> list[Path]:
    """The folders of all skills: a thread that uses one may read and run its files, but not change
    them."""
    subagent_skills = (
        skill
        for subagent in agent.subagents
        if subagent.own is not None
        for skill in subagent.own.skills
    )
    skills = (*agent.skills, *subagent_skills)
    on_disk = (skill for skill in skills if skill.kind == "skill" and skill.file)
    return [Path(folder) for folder in dict.fromkeys(skill.folder for skill in on_disk)]
