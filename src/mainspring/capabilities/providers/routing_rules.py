"""Selects the models for a task: by rules as data, then by a classifier if there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.model import Model, Request

Role: TypeAlias = Literal["main", "small", "judge", "embed"]


class ModelCandidate(Struct, frozen=True, kw_only=True):
    id: str
    """`provider:name`, as in the catalog."""
    model: Model

    @property
    def provider(self) -> str:
        return self.id.partition(":")[0]

    @property
    def name(self) -> str:
        """The provider's name for the model."""
        return self.id.partition(":")[2]


class RoutingTask(Struct, frozen=True, kw_only=True):
    """The properties that the rules match, in addition to the request."""

    role: Role = "main"
    agent: str = ""
    skills: tuple[str, ...] = ()


class RoutingRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Applies if all its conditions match. Names are shell patterns."""

    use: str
    """A role, whose candidates then answer, or a candidate's id, which is then tried first."""
    role: Role = "main"
    agent: str | None = None
    skill: str | None = None
    min_tools: int | None = None
    max_tools: int | None = None

    def fits(self, routing_task: RoutingTask, request: Request) -> bool:
        tools = len(request.tools)
        return (
            self.role == routing_task.role
            and (self.agent is None or fnmatchcase(routing_task.agent, self.agent))
            and (self.skill is None or any(fnmatchcase(s, self.skill) for s in routing_task.skills))
            and (self.min_tools is None or tools >= self.min_tools)
            and (self.max_tools is None or tools <= self.max_tools)
        )


Classifier: TypeAlias = Callable[[RoutingTask, Request], Awaitable[str | None]]
"""Returns a value for a rule's `use`, or None for the role's own candidates."""


class Routing:
    """The candidates of each role, and which of them a task uses."""

    def __init__(
        self,
        roles: Mapping[Role, Sequence[ModelCandidate]],
        rules: Sequence[RoutingRule] = (),
        classifier: Classifier | None = None,
    ) -> None:
        """Raises InvalidInput if a role is empty or a rule names an unknown model or role."""
        self._roles = {role: tuple(candidates) for role, candidates in roles.items()}
        self._rules = tuple(rules)
        self._classifier = classifier
        empty = [role for role, candidates in self._roles.items() if not candidates]
        if empty:
            raise InvalidInput(f"no models for {', '.join(empty)}")
        for rule in self._rules:
            self._ordered(rule.role, rule.use)

    def candidates(self, role: Role) -> tuple[ModelCandidate, ...]:
        """The candidates of a role; without its own, those of `main`.

        Raises:
            InvalidInput: `main` has none either.
        """
        model_candidates = self._roles.get(role) or self._roles.get("main")
        if not model_candidates:
            raise InvalidInput(f"no models for {role}")
        return model_candidates

    async def choose(
        self, routing_task: RoutingTask, request: Request
    ) -> tuple[ModelCandidate, ...]:
        """The candidates, in the order they are to be tried."""
        for rule in self._rules:
            if rule.fits(routing_task, request):
                return self._ordered(routing_task.role, rule.use)
        if self._classifier is not None:
            use = await self._classifier(routing_task, request)
            if use is not None:
                return self._ordered(routing_task.role, use)
        return self.candidates(routing_task.role)

    def _ordered(self, role: Role, use: str) -> tuple[ModelCandidate, ...]:
        for role_name, candidates in self._roles.items():
            if role_name == use:
                return candidates
        candidates = self.candidates(role)
        for candidate in chain.from_iterable(self._roles.values()):
            if candidate.id == use:
                return (candidate, *(other for other in candidates if other.id != use))
        raise InvalidInput(f"a rule uses {use!r}, which is neither a role nor one of its models")
