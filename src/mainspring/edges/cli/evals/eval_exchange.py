"""`mainspring eval import` and `eval export`: suites and results of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import typer
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.printing import Screen, plural, print_note, print_result
from mainspring.edges.cli.session_lookup import find_run, open_existing_log
from mainspring.files.atomic_file import write_atomic
from mainspring.improve.evals.exchange.formats import read_imported_suite
from mainspring.improve.evals.exchange.harbor import write_tasks
from mainspring.improve.evals.exchange.promptfoo import write_promptfoo
from mainspring.improve.evals.exchange.skill_creator import benchmark_files, write_skill_evals
from mainspring.improve.evals.gate.baseline import encode_baseline
from mainspring.improve.evals.runs.run_log import EvalRun, read_run
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.new_suite import write_suite
from mainspring.improve.evals.suites.suite_files import EVALS_FOLDER

ExportFormat: TypeAlias = Literal["promptfoo", "harbor", "skill-creator"]


async def import_(
    settings: Settings,
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="promptfoo's YAML, skill-creator's evals.json, an Inspect log, Harbor tasks.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="[default: the file's name]")
    ] = None,
    agent: AgentFolderOption = None,
) -> int:
    """Import a suite of another tool. Its results become the baseline."""
    source = Path(settings.folder, file)
    result = await to_thread.run_sync(read_imported_suite, source, clock.now())
    suite = result.suite
    if name is not None:
        suite = msgspec.structs.replace(suite, name=name)
    folder = Path(settings.folder, agent or ".")
    written = await to_thread.run_sync(write_suite, folder, suite)
    await to_thread.run_sync(_write_files, folder / EVALS_FOLDER, result.files)
    screen = Screen(settings)
    for note in result.notes:
        print_note(settings, note, "yellow")
    text = f" with {plural(len(suite.cases), 'case')}"
    screen.line(("wrote ", ""), (f"{EVALS_FOLDER}/{written.name}", "bold"), (text, ""))
    if result.baseline is not None:
        place = SuiteFile(suite=suite, file=written, hash="").baseline
        content = encode_baseline(msgspec.structs.replace(result.baseline, suite=suite.name))
        await to_thread.run_sync(write_atomic, place, content)
        screen.line(("wrote ", ""), (f"{EVALS_FOLDER}/baselines/{place.name}", "bold"))
    return 0


async def export(
    settings: Settings,
    *,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The suite's name.")],
    to: Annotated[ExportFormat, typer.Option("--to", help="The format.")],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="PATH", help="The file to write; for Harbor, a folder."
        ),
    ],
    agent: AgentFolderOption = None,
) -> int:
    """Write a suite in the format of another tool."""
    suite_file = load_suites(Path(settings.folder, agent or "."), [suite])[0]
    target = Path(settings.folder, output)
    files, notes = await to_thread.run_sync(_export_files, suite_file, to)
    for note in notes:
        print_note(settings, note, "yellow")
    if "" in files:
        await to_thread.run_sync(write_atomic, target, files[""])
    else:
        await to_thread.run_sync(_write_files, target, files)
    Screen(settings).line(("wrote ", ""), (output, "bold"))
    return 0


def _export_files(suite_file: SuiteFile, to: ExportFormat) -> tuple[dict[str, bytes], list[str]]:
    """The files by path, and notes. A format of one file has an empty path."""
    if to == "harbor":
        return write_tasks(suite_file.suite, suite_file.folder)
    write = write_promptfoo if to == "promptfoo" else write_skill_evals
    content, notes = write(suite_file.suite)
    return {"": content}, notes


async def benchmark(
    settings: Settings,
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run with the skill.")],
    baseline: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The same suite without the skill.")
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR")],
    skill: Annotated[
        str | None, typer.Option("--skill", metavar="NAME", help="[default: the suite's name]")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Write runs as a skill-creator benchmark. Writes benchmark.json, and a grading.json for each
    trial."""
    async with open_existing_log(settings) as log:
        runs: list[EvalRun] = [
            await read_run(log, (await find_run(log, name, "eval")).id)
            for name in (run, baseline)
            if name is not None
        ]
    name = skill or runs[0].created.suite
    files = benchmark_files(runs[0], runs[1] if len(runs) > 1 else None, name)
    await to_thread.run_sync(_write_files, Path(settings.folder, output), files)
    text = (("wrote ", ""), (f"{output}/benchmark.json", "bold"))
    return print_result(settings, {"files": sorted(files)}, *text, json=json)


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise InvalidInput(f"{name} is not a path inside {folder}")
        write_atomic(file, content)
