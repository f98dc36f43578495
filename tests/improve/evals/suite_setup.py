"""An agent's folder with suites and a scripted model, and runs of them with everything real."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from tests.environ import boundary

from mainspring.config import Settings, read_settings
from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.suite import Case, Script, SuiteFile
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner

MODEL = "scripted:model.yaml"


@dataclass
class AgentWithSuite:
    folder: Path
    results: list[EvalCaseEnded] = field(default_factory=list[EvalCaseEnded])
    """Of the last run, as they came."""
    home: Path | None = None

    @property
    def settings(self) -> Settings:
        settings = read_settings(environ=boundary(), folder=self.folder)
        return settings if self.home is None else replace(settings, home=str(self.home))

    def write_model(self, *parts: dict[str, object]) -> None:
        (self.folder / "model.yaml").write_text(yaml.safe_dump(list(parts)), encoding="utf-8")

    def write_suite(self, suite: dict[str, object], name: str = "basics") -> SuiteFile:
        file = self.folder / "evals" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
        return read_suite(file)

    @asynccontextmanager
    async def runner(self, model: str = MODEL) -> AsyncGenerator[SuiteRunner]:
        async with open_suite_runner(self.settings, RunOptions(model=model)) as runner:
            yield runner

    async def run(
        self,
        suite_file: SuiteFile,
        selection: Selection | None = None,
        settings: RunSettings | None = None,
        *,
        model: str = MODEL,
    ) -> EvalRun:
        self.results.clear()
        settings = settings or RunSettings()
        async with self.runner(model) as runner:
            plan = await runner.plan(suite_file, selection or Selection(), settings)
            return await runner.run(suite_file, plan, settings, self.results.append)


def new_agent(folder: Path, *, tools: str | None = None) -> AgentWithSuite:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = f"name: tested\n{f'tools: {tools}' if tools else ''}\n"
    (folder / "agent.yaml").write_text(manifest, encoding="utf-8")
    made = AgentWithSuite(folder)
    made.write_model({"steps": [{"says": "hello"}]})
    return made


def results_of(run: EvalRun, case_id: str) -> list[EvalCaseEnded]:
    """By trial."""
    return [item for item in run.sorted_results if item.case_id == case_id]


def outcomes(run: EvalRun) -> dict[str, str]:
    """By case; of several trials, one after the other."""
    names = dict.fromkeys(case_id for case_id, _ in run.results)
    return {name: " ".join(item.outcome for item in results_of(run, name)) for name in names}


def scripts(chosen: Callable[[Case], Script | None]) -> RunSettings:
    def script_of(case: Case) -> Script:
        script = chosen(case)
        assert script is not None, case.id
        return script

    return RunSettings(script_of=script_of, parallel=4)
