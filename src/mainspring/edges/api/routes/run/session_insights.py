"""`/v1/sessions/{session_id}/...`: context, hook runs, senders, replay, cost and policy tests of
a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mainspring.edges.api.replays import AskReplay, ReplayReport, Replays
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.runtime.session.xrays import ShotView
from mainspring.service.sessions.activity_list import ActivityList, ListActivity, SessionNow
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
    ListLogEvents,
    ReceivedEvent,
    SessionReports,
)
from mainspring.service.storage.pagination import Page


@dataclass(frozen=True, slots=True)
class ActivityRoutes:
    activity: ActivityList

    @route(
        "GET /v1/mainspring/activity",
        "List what sessions do now, or why they wait",
        for_agent_keys=True,
    )
    async def list(self, call: ApiCall[ListActivity, Empty]) -> Page[SessionNow]:
        return await self.activity.page(call.who, call.query)


_SESSION = "/v1/sessions/{session_id}"


@dataclass(frozen=True, slots=True)
class InsightRoutes:
    session_reports: SessionReports
    replays: Replays
    route_options: ClassVar[RouteOptions] = {"is_extension": True}

    @route(
        "GET /v1/sessions/{session_id}/context",
        "Get the input of each model call, and the source of each part",
    )
    async def context(self, call: ApiCall[ContextParams, Empty]) -> Page[ShotView]:
        return await self.session_reports.context(call.who, call["session_id"], call.query)

    @route("GET /v1/sessions/{session_id}/hooks", "List the hook runs of a session")
    async def hooks(self, call: ApiCall[ListLogEvents, Empty]) -> Page[HookRun]:
        return await self.session_reports.hook_runs(call.who, call["session_id"], call.query)

    @route(
        "GET /v1/sessions/{session_id}/senders",
        "List the messages sent to a session, and their senders",
    )
    async def senders(self, call: ApiCall[ListLogEvents, Empty]) -> Page[ReceivedEvent]:
        return await self.session_reports.senders(call.who, call["session_id"], call.query)

    @route(
        "POST /v1/sessions/{session_id}/replay",
        "Replay a session without its model and tools, and compare",
    )
    async def replay(self, call: ApiCall[Empty, AskReplay]) -> ReplayReport:
        return await self.replays.replay(call.who, call["session_id"], call.body)


@dataclass(frozen=True, slots=True)
class CostRoutes:
    costs: Costs

    @route("GET /v1/mainspring/cost", "Get the cost of sessions, page by page", for_agent_keys=True)
    async def report(self, call: ApiCall[CostReportParams, Empty]) -> CostReport:
        return await self.costs.report(call.who, call.query)

    @route(
        "GET /v1/sessions/{session_id}/budget",
        "Get the spent, reserved and remaining amounts of the budgets of a session",
        is_extension=True,
    )
    async def budget(self, call: ApiCall[Empty, Empty]) -> SessionBudget:
        return await self.costs.budget(call.who, call["session_id"])


@dataclass(frozen=True, slots=True)
class PolicyRoutes:
    evaluator: RuleEvaluator

    @route(
        "POST /v1/mainspring/policy/test",
        "Evaluate rules for a call: the decision, and the reason",
        for_agent_keys=True,
        role="viewer",
    )
    async def evaluate(self, call: ApiCall[Empty, EvaluateRules]) -> PolicyVerdict:
        return await self.evaluator.evaluate(call.body)

    @route(
        "POST /v1/sessions/{session_id}/policy/test",
        "List the calls of a session that other rules would decide differently",
        is_extension=True,
        role="viewer",
    )
    async def compare(self, call: ApiCall[Empty, ReplayRules]) -> PolicyReplay:
        return await self.evaluator.compare(call.who, call["session_id"], call.body)
