"""The principal of a request: the key of a tenant, its permissions, and the agent that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mainspring.core.errors import Forbidden
from mainspring.core.sender import Sender, local_user

Role: TypeAlias = Literal["viewer", "user", "operator", "admin"]
"""Each role includes those before it: read; run sessions; change agents and environments, answer
for others, read the audit; manage keys."""
CLI_PRINCIPAL = "cli"
"""The `key_id` of a person who uses the command line on the machine of the store."""
ROLES: tuple[Role, ...] = ("viewer", "user", "operator", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    tenant: str
    key_id: str
    """The id of the key, or `oidc:<subject>`."""
    issuer: str = ""
    """The issuer of the subject; two issuers may have subjects of the same name."""
    role: Role
    name: str = ""
    """The name of the key, or the e-mail address of the subject."""
    agent_id: str | None = None
    """The only agent that the key may use."""
    grants: frozenset[str] = frozenset()
    """For a key of one agent: ids of other resources that it may name."""
    environment_id: str | None = None
    """The only environment whose work it may take: the key of a self-hosted worker."""
    session_id: str | None = None
    """The only session that it may use: the token of a work item."""
    work_id: str | None = None
    """The work item of the token."""
    acting_agent: str | None = None
    """The agent that makes this request, with a key that was given to it."""
    system: str | None = None
    """The deployment or trigger that acts, if the request comes from no client."""

    @property
    def sender(self) -> Sender:
        """The sender that events record."""
        if self.system is not None:
            return Sender(kind="system", id=self.system)
        if self.environment_id is not None:
            return Sender(kind="worker", id=self.key_id, on_behalf_of=(self.environment_id,))
        if self.acting_agent is not None:
            return Sender(kind="agent", id=self.acting_agent, on_behalf_of=(self.key_id,))
        if self.key_id == CLI_PRINCIPAL:
            return local_user(self.name)
        return Sender(kind="person", id=self.key_id)

    @property
    def is_person(self) -> bool:
        """Whether it acts neither for an agent nor as the worker of an environment."""
        return self.acting_agent is None and self.environment_id is None

    def is_at_least(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: Role) -> None:
        """Raises: Forbidden."""
        if not self.is_at_least(role):
            raise Forbidden(f"this needs the role {role}; the key {self.name!r} has {self.role}")

    def require_agent(self, agent_id: str) -> None:
        """Raises: Forbidden: the key is for another agent."""
        if self.agent_id not in (None, agent_id):
            raise Forbidden(f"the key {self.name!r} is for the agent {self.agent_id} only")

    def require_human(self) -> None:
        """For actions that would give an agent more permissions.

        Raises: Forbidden.
        """
        if self.acting_agent is not None:
            raise Forbidden(f"only a person may do this; {self.acting_agent} is an agent")
        if self.environment_id is not None:
            raise Forbidden("only a person may do this; the key belongs to a worker")
