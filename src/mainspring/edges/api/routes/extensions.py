"""`/v1/sessions/{session_id}/...`: how it went, what it cost, and whether it would go so again."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.replays import AskReplay, ReplayReport, Replays
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.runtime.xrays import ShotView
from mainspring.service.keeping.page import Page
from mainspring.service.sessions.costs import AskCost, CostReport, Costs, SessionBudget
from mainspring.service.sessions.insights import (
    AskContext,
    HookRun,
    Insights,
    ListHookRuns,
    ListSenders,
    SentEvent,
)
from mainspring.service.sessions.rule_trials import (
    AskRetrial,
    AskVerdict,
    PolicyRetrial,
    PolicyVerdict,
    RuleTrials,
)

_SESSION = "/v1/sessions/{session_id}"


@dataclass(frozen=True, slots=True)
class InsightRoutes:
    insights: Insights
    replays: Replays

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=f"{_SESSION}/context",
                handle=self.context,
                summary="See what the model was given at each call, and what that was made of",
                query=AskContext,
                answer=Page[ShotView],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/hooks",
                handle=self.hooks,
                summary="List the runs of hooks in a session",
                query=ListHookRuns,
                answer=Page[HookRun],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/senders",
                handle=self.senders,
                summary="List what was sent to a session, and who sent it",
                query=ListSenders,
                answer=Page[SentEvent],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{_SESSION}/replay",
                handle=self.replay,
                summary="Run a session again without its model and tools: is everything the same?",
                body=AskReplay,
                answer=ReplayReport,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def context(self, call: Call[AskContext, Nothing]) -> Page[ShotView]:
        return await self.insights.context(call.who, call["session_id"], call.query)

    async def hooks(self, call: Call[ListHookRuns, Nothing]) -> Page[HookRun]:
        return await self.insights.hook_runs(call.who, call["session_id"], call.query)

    async def senders(self, call: Call[ListSenders, Nothing]) -> Page[SentEvent]:
        return await self.insights.senders(call.who, call["session_id"], call.query)

    async def replay(self, call: Call[Nothing, AskReplay]) -> ReplayReport:
        return await self.replays.replay(call.who, call["session_id"], call.body)


@dataclass(frozen=True, slots=True)
class CostRoutes:
    costs: Costs

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path="/v1/mainspring/cost",
                handle=self.report,
                summary="See what sessions cost, a page of them at a time",
                query=AskCost,
                answer=CostReport,
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/budget",
                handle=self.budget,
                summary="See what is spent, reserved and left of the budgets of a session",
                answer=SessionBudget,
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def report(self, call: Call[AskCost, Nothing]) -> CostReport:
        return await self.costs.report(call.who, call.query)

    async def budget(self, call: Call[Nothing, Nothing]) -> SessionBudget:
        return await self.costs.budget(call.who, call["session_id"])


@dataclass(frozen=True, slots=True)
class PolicyRoutes:
    trials: RuleTrials

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/v1/mainspring/policy/test",
                handle=self.judge,
                summary="Ask what rules would decide about a call, and why",
                body=AskVerdict,
                answer=PolicyVerdict,
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{_SESSION}/policy/test",
                handle=self.retry,
                summary="Ask which calls of a session other rules would decide otherwise",
                body=AskRetrial,
                answer=PolicyRetrial,
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def judge(self, call: Call[Nothing, AskVerdict]) -> PolicyVerdict:
        return await self.trials.judge(call.body)

    async def retry(self, call: Call[Nothing, AskRetrial]) -> PolicyRetrial:
        return await self.trials.retry(call.who, call["session_id"], call.body)
