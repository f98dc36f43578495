"""`/v1/mainspring/eval_runs`, and making a case of a session."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.service.evals.eval_runs import (
    AddedEvalCase,
    AddEvalCase,
    EvalRunDetail,
    EvalRunLine,
    EvalRuns,
    ListEvalRuns,
)
from mainspring.service.storage.pagination import Page


@dataclass(frozen=True, slots=True)
class EvalRunRoutes:
    eval_runs: EvalRuns

    @route("GET /v1/mainspring/eval_runs", "List runs of the folder's eval suites, newest first")
    async def list(self, call: ApiCall[ListEvalRuns, Empty]) -> Page[EvalRunLine]:
        return await self.eval_runs.page(call.tenant, call.query)

    @route(
        "GET /v1/mainspring/eval_runs/{eval_run_id}",
        "Get an eval run: the verdict, the reasons, and every case with its sessions",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> EvalRunDetail:
        return await self.eval_runs.get(call.tenant, call["eval_run_id"])

    @route(
        "POST /v1/sessions/{session_id}/eval_case",
        "Make a case of a session and add it to a suite of the folder",
        role="operator",
        is_extension=True,
        for_agent_keys=False,
    )
    async def add_case(self, call: ApiCall[Empty, AddEvalCase]) -> AddedEvalCase:
        call.who.require_human()
        return await self.eval_runs.add_case(call.who, call["session_id"], call.body)
