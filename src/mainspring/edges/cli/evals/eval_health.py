"""`mainspring eval health` and `eval reward check`: whether a suite can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.evals.eval_suites import SuitesArgument, load_suites
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.printing import Screen, StyledText, plural, print_list
from mainspring.improve.evals.quality.reward_check import HighScore, check_reward
from mainspring.improve.evals.quality.suite_health import SuiteHealth, check_health
from mainspring.improve.evals.suite import SuiteFile
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

reward = command_group()


async def health(
    settings: Settings,
    *,
    suites: SuitesArgument = None,
    agent: AgentFolderOption = None,
    json: JsonOption = False,
) -> int:
    """Check whether suites can be trusted. Doing nothing must fail, and solutions must pass. Only
    judges cost money. Exit status 1 if a suite is not healthy."""
    folder = Path(settings.folder, agent or ".")
    screen, status = Screen(settings), 0
    async with open_suite_runner(settings, RunOptions(agent=folder)) as runner:
        for suite_file in load_suites(folder, suites or []):
            report = await check_health(runner, suite_file)
            status = max(status, int(not report.is_healthy))
            if json:
                screen.json(report)
            else:
                for line in _health_lines(suite_file, report):
                    screen.paragraph(*line)
    return status


def _health_lines(suite_file: SuiteFile, report: SuiteHealth) -> Iterator[tuple[StyledText, ...]]:
    text, style = ("healthy", "green") if report.is_healthy else ("not healthy", "bold red")
    yield (suite_file.suite.name, "bold"), (f"  {text}", style)
    yield ((f"  {report.solutions} of {plural(report.cases, 'case')} have a solution", ""),)
    for problem, names, style in (
        ("pass although nothing is done", report.noop_passed, "red"),
        ("fail with their own solution", report.oracle_failed, "red"),
        ("pass with their own failing script", report.failure_passed, "red"),
        ("pass with another case's solution", report.shuffled_passed, "yellow"),
        ("have passed in every run", report.never_failed, "yellow"),
        ("come from a session that is gone", report.missing_sources, "yellow"),
    ):
        if names:
            yield ((f"  {problem}: {', '.join(names)}", style),)
    shares = (f"{tag} {count / report.cases:.0%}" for tag, count in sorted(report.tags.items()))
    yield ((f"  tags: {', '.join(shares)}", "dim"),)


@command(reward)
async def check(
    settings: Settings,
    *,
    suites: SuitesArgument = None,
    agent: AgentFolderOption = None,
    json: JsonOption = False,
) -> int:
    """Show wrong outcomes that score high. They miss the intent of their case. Exit status 1 if one
    passes."""
    folder = Path(settings.folder, agent or ".")
    scores: list[HighScore] = []
    async with open_suite_runner(settings, RunOptions(agent=folder)) as runner:
        for suite_file in load_suites(folder, suites or []):
            scores += await check_reward(runner, suite_file)
    print_list(
        settings,
        scores,
        json=json,
        heads=["CASE", "OUTCOME", "VERDICT", "INCENTIVES", "SOLUTION", "HELD BACK BY"],
        row=_score_row,
        empty="no outcome that misses the intent scores high",
    )
    return int(any(score.passed for score in scores))


def _score_row(score: HighScore) -> list[StyledText]:
    verdict = ("passes", "bold red") if score.passed else ("fails", "")
    return [
        (score.case_id, "bold"),
        (score.outcome, ""),
        verdict,
        *(
            ("" if value is None else f"{value:.2f}", "")
            for value in (score.incentives, score.solution)
        ),
        ("; ".join(score.constraints) or "nothing", "dim" if score.constraints else "red"),
    ]
