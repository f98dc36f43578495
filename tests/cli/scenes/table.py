"""All scenes, by command."""

from __future__ import annotations

from tests.cli.scenes import (
    eval_scenes,
    evolve_scenes,
    mcp_scenes,
    memory_scenes,
    run_scenes,
    service_scenes,
    session_scenes,
    workflow_scenes,
)
from tests.cli.scenes.scene import Scene

_MCP = "cli/test_mcp.py::test_server_tools_are_listed_and_called_without_a_model"
_AUTH = "cli/test_mcp_auth.py::test_a_user_logs_in_uses_the_tools_and_logs_out"
_TOP = "cli/test_sessions.py::test_top_lists_running_and_waiting_sessions"
_PUSH = "api/test_session_push.py::test_a_session_is_pushed_with_its_files_and_open_approval"
_PULL = "api/test_session_pull.py::test_a_session_is_pulled_with_its_files_and_open_approval"
_INSIGHTS = "cli/test_insights.py::test_insights_report_waste_failures_and_missing_rules"
_GRADE = "cli/test_slo_and_cost.py::test_graded_production_sessions_are_shown_beside_suite_results"
_USER = "cli/test_process_user.py::test_a_service_that_switched_user_keeps_no_root_privileges"
_ENVIRONMENT = (
    "cli/test_environment.py::test_a_plan_proven_by_the_tests_is_saved_and_sessions_start_from_it"
)
_PORT = "cli/test_serve.py::test_a_failed_start_creates_no_key"
_PUSH_KILLED = (
    "api/test_session_push_crashes.py"
    "::test_a_push_killed_at_any_step_leaves_one_copy_that_continues"
)
PROVEN_ELSEWHERE: dict[tuple[str, str], str] = {
    ("", "--debug"): "cli/test_startup.py::test_global_options_are_accepted_anywhere",
    ("", "--store"): "cli/test_postgres.py::test_a_session_moves_from_a_file_to_a_server",
    ("environment ls", "--json"): _ENVIRONMENT,
    ("eval grade", "--now"): _GRADE,
    ("insights", "--limit"): _INSIGHTS,
    ("mcp auth", "--json"): _AUTH,
    ("mcp auth", "--logout"): _AUTH,
    ("mcp auth", "--status"): _AUTH,
    ("mcp inspect", "--input"): _MCP,
    ("mcp inspect", "--raw"): _MCP,
    ("mcp tools", "--json"): _MCP,
    ("serve", "--port"): _PORT,
    ("serve", "--user"): _USER,
    ("sessions pull", "--json"): _PULL,
    ("sessions push", "--agent"): _PUSH,
    ("sessions push", "--environment"): _PUSH,
    ("sessions push", "--json"): _PUSH_KILLED,
    ("top", "--json"): _TOP,
    ("top", "--once"): _TOP,
}
"""Options of commands that need a server or another program: the tests that prove them."""
SCENES: dict[str, Scene] = {
    **session_scenes.SCENES,
    **memory_scenes.SCENES,
    **service_scenes.SCENES,
    **run_scenes.SCENES,
    **eval_scenes.SCENES,
    **mcp_scenes.SCENES,
    **evolve_scenes.SCENES,
    **workflow_scenes.SCENES,
}
