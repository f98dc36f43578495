"""`/v1/mainspring/halts`: stop a tenant's agents, and let them go on."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.core.ids import FormerAgentId
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.access.halts import CreateHalt, Halt, Halts
from mainspring.service.keeping.page import Page


class Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: FormerAgentId | None = None
    """`None`: the halt of the whole tenant."""


class Resumed(Struct, frozen=True, kw_only=True):
    agent_id: str | None


@dataclass(frozen=True, slots=True)
class HaltRoutes:
    halts: Halts

    def routes(self) -> tuple[Route, ...]:
        path = "/v1/mainspring/halts"
        return (
            Route(
                method="POST",
                path=path,
                handle=self.halt,
                summary="Stop an agent, or all agents of the tenant",
                body=CreateHalt,
                answer=Halt,
                role="operator",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=path,
                handle=self.list,
                summary="List what is stopped",
                answer=Page[Halt],
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{path}/resume",
                handle=self.resume,
                summary="Let what was stopped go on",
                body=Resume,
                answer=Resumed,
                role="operator",
                is_extension=True,
            ),
        )

    async def halt(self, call: Call[Nothing, CreateHalt]) -> Halt:
        return await self.halts.halt(call.tenant, call.who, call.body)

    async def list(self, call: Call[Nothing, Nothing]) -> Page[Halt]:
        return Page(data=await self.halts.of(call.tenant))

    async def resume(self, call: Call[Nothing, Resume]) -> Resumed:
        await self.halts.resume(call.tenant, call.who, call.body.agent_id)
        return Resumed(agent_id=call.body.agent_id)
