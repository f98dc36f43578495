"""`/v1/sessions/{session_id}/...`: context, hook runs, senders, replay, cost and policy tests of
a session.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.replays import AskReplay, ReplayReport, Replays
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.runtime.session.xrays import ShotView
from mainspring.service.sessions.cost_reports import (
    CostReport,
    CostReportParams,
    Costs,
    SessionBudget,
)
from mainspring.service.sessions.rule_evaluation import (
    EvaluateRules,
    PolicyReplay,
    PolicyVerdict,
    ReplayRules,
    RuleEvaluator,
)
from mainspring.service.sessions.session_reports import (
    ContextParams,
    HookRun,
    ListHookRuns,
    ListSenders,
    ReceivedEvent,
    SessionReports,
)
from mainspring.service.storage.pagination import Page

_SESSION = "/v1/sessions/{session_id}"


@dataclass(frozen=True, slots=True)
class InsightRoutes:
    session_reports: SessionReports
    replays: Replays

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=f"{_SESSION}/context",
                handle=self.context,
                summary="Get what the model received at each call, and where it came from",
                query=ContextParams,
                response_type=Page[ShotView],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/hooks",
                handle=self.hooks,
                summary="List the hook runs of a session",
                query=ListHookRuns,
                response_type=Page[HookRun],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/senders",
                handle=self.senders,
                summary="List the messages sent to a session, and their senders",
                query=ListSenders,
                response_type=Page[ReceivedEvent],
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{_SESSION}/replay",
                handle=self.replay,
                summary="Replay a session without its model and tools, and compare",
                body=AskReplay,
                response_type=ReplayReport,
                role="user",
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def context(self, call: ApiCall[ContextParams, Empty]) -> Page[ShotView]:
        return await self.session_reports.context(call.who, call["session_id"], call.query)

    async def hooks(self, call: ApiCall[ListHookRuns, Empty]) -> Page[HookRun]:
        return await self.session_reports.hook_runs(call.who, call["session_id"], call.query)

    async def senders(self, call: ApiCall[ListSenders, Empty]) -> Page[ReceivedEvent]:
        return await self.session_reports.senders(call.who, call["session_id"], call.query)

    async def replay(self, call: ApiCall[Empty, AskReplay]) -> ReplayReport:
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
                summary="Get the cost of sessions, page by page",
                query=CostReportParams,
                response_type=CostReport,
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=f"{_SESSION}/budget",
                handle=self.budget,
                summary="Get what is spent, reserved and left of the budgets of a session",
                response_type=SessionBudget,
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def report(self, call: ApiCall[CostReportParams, Empty]) -> CostReport:
        return await self.costs.report(call.who, call.query)

    async def budget(self, call: ApiCall[Empty, Empty]) -> SessionBudget:
        return await self.costs.budget(call.who, call["session_id"])


@dataclass(frozen=True, slots=True)
class PolicyRoutes:
    trials: RuleEvaluator

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/v1/mainspring/policy/test",
                handle=self.judge,
                summary="Evaluate what the rules would decide about a call, and why",
                body=EvaluateRules,
                response_type=PolicyVerdict,
                for_agent_keys=True,
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{_SESSION}/policy/test",
                handle=self.retry,
                summary="List the calls of a session that other rules would decide differently",
                body=ReplayRules,
                response_type=PolicyReplay,
                for_agent_keys=True,
                is_extension=True,
            ),
        )

    async def judge(self, call: ApiCall[Empty, EvaluateRules]) -> PolicyVerdict:
        return await self.trials.judge(call.body)

    async def retry(self, call: ApiCall[Empty, ReplayRules]) -> PolicyReplay:
        return await self.trials.retry(call.who, call["session_id"], call.body)
