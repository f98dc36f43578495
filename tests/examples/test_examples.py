"""The examples, as their READMEs say to run them, offline; what is looked at is what comes out."""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias

import pypdfium2  # pyright: ignore[reportMissingTypeStubs] (it has types, and they say little)
import pytest
from tests import fork_server
from tests.cli.conftest import environ

from mainspring.runtime.skills.strict_validation import check_strict

__all__ = ["environ"]

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("repo-maintainer", "research-analyst", "data-analyst")
WORKFLOW = "reviewed-change"
LEFT = {".mainspring", "out", "evidence", "REPORT.md", "plan.md", ".workflow-runs"}
"""What a run leaves at the top of an example."""
SVG = "{http://www.w3.org/2000/svg}"
Facts: TypeAlias = list[dict[str, Any]]  # payloads of events, as JSON has them
Play: TypeAlias = Callable[[str], tuple[Path, Facts]]


@pytest.fixture
def play(tmp_path: Path, environ: dict[str, str]) -> Play:
    """Run an example's offline command in a copy of it; its folder, and every event."""

    def run(name: str) -> tuple[Path, Facts]:
        folder = copy_example(name, tmp_path / name)
        trusting, running = offline_commands(name)
        trusted = fork_server.run(*trusting, cwd=folder, env=environ)
        assert trusted.returncode == 0, trusted.stderr
        ended = fork_server.run(*running, "--json", cwd=folder, env=environ)
        *events, result = [json.loads(line) for line in ended.stdout.splitlines()]
        assert ended.returncode == 0, (ended.stderr, result)
        return folder, [event["payload"] for event in events]

    return run


def copy_example(name: str, folder: Path) -> Path:
    """The example as it is before anybody has run it here as its README says."""

    def left(place: str, names: list[str]) -> set[str]:
        return LEFT & set(names) if Path(place) == EXAMPLES / name else set()

    shutil.copytree(EXAMPLES / name, folder, ignore=left)
    project = f"{name}/project"  # which a run mends in its place
    git = ["git", "-C", str(EXAMPLES)]
    known = subprocess.run([*git, "ls-files", project], capture_output=True, text=True)
    for path in known.stdout.splitlines():  # none where the sources are not from git
        committed = subprocess.run([*git, "show", f":./{path}"], capture_output=True, check=True)
        (folder.parent / path).write_bytes(committed.stdout)
    return folder


def offline_commands(name: str) -> list[list[str]]:
    """What the README says, without `cd` and the command's own name."""
    text = (EXAMPLES / name / "README.md").read_text()
    [line] = [line for line in text.splitlines() if "--model scripted:offline.yaml" in line]
    there, *commands = line.split(" && ")
    assert there == f"cd examples/{name}"
    spelled = [shlex.split(command) for command in commands]
    assert all(words[0] == "mainspring" for words in spelled)
    return [words[1:] for words in spelled]


def published_artifacts(events: Facts) -> set[str]:
    return {event["name"] for event in events if event["type"] == "artifact.published"}


def called_subagents(events: Facts) -> list[str]:
    """The types of the subagents, in order."""
    born = [event for event in events if event["type"] == "session.thread_created"]
    return [event["agent_name"] for event in born]


def unittests(project: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-B", "-m", "unittest", "discover", "-t", ".", "-s", "tests"]
    return subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=60)


def test_the_maintainer_fixes_the_cause_and_reports_measurements(play: Play, tmp_path: Path):
    before = unittests(
        copy_example("repo-maintainer", tmp_path / "before" / "repo-maintainer") / "project"
    )
    assert (before.returncode, "FAILED (failures=1)" in before.stderr) == (1, True)
    folder, events = play("repo-maintainer")
    after = unittests(folder / "project")
    assert (after.returncode, "Ran 6 tests" in after.stderr) == (0, True)
    assert called_subagents(events) == ["explore", "verify"]
    report = (folder / "REPORT.md").read_text()
    assert "-    return [amount // parts] * parts" in report
    assert "AssertionError: 1998 != 2000" in report
    first, last = report.index("5 of 6 tests pass, exit"), report.index("6 of 6 tests pass, exit")
    assert first < last
    assert published_artifacts(events) == {"REPORT.md"}


def test_every_citation_of_the_research_analyst_refers_to_a_supporting_line(play: Play):
    folder, events = play("research-analyst")
    documents = {file.stem: file.read_text().splitlines() for file in folder.glob("documents/*")}
    assert called_subagents(events) == ["reader"] * len(documents)
    report = (folder / "out" / "report.md").read_text()
    text, _, quotations = report.partition("## Quotations")
    quoted = {
        (name, int(line)): words
        for name, line, words in re.findall(r'^- \[(.+?):(\d+)\] "(.+)"$', quotations, re.MULTILINE)
    }
    cited = {(name, int(line)) for name, line in re.findall(r"\[([\w.-]+):(\d+)\]", text)}
    assert cited == quoted.keys()
    assert {name for name, _ in cited} == documents.keys()
    for (name, line), words in quoted.items():
        assert words in documents[name][line - 1]
    assert "[03-maintenance-log:7]" in text.partition("disagree")[2]
    assert "[07-newsletter:5]" in text.partition("disagree")[2]
    assert f"{11 * 1.5 * 8760 * 0.29 / 1000:.1f} GWh, and that is not enough" in text
    page = Page((folder / "out" / "report.html").read_text())
    assert set(page.links) == {f"#{name}-{line}" for name, line in cited}
    assert {link[1:] for link in page.links} <= page.ids
    assert published_artifacts(events) == {"out/report.html", "out/report.md"}


@pytest.mark.slow
def test_the_reviewed_change_waits_for_its_gate_and_is_made_as_its_readme_says(
    tmp_path: Path, environ: dict[str, str]
):
    folder = copy_example(WORKFLOW, tmp_path / WORKFLOW)
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "before"]):
        git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.com", *words]
        subprocess.run(git, cwd=folder, env=environ, check=True)
    text = (folder / "README.md").read_text()
    lines = re.findall(r"^mainspring .+$", text, re.MULTILINE)
    printed: list[str] = []
    for line in lines:
        ended = fork_server.run(*shlex.split(line)[1:], cwd=folder, env=environ)
        is_paused = ended.returncode == 3
        assert ended.returncode == 0 or is_paused, (line, ended.stdout, ended.stderr)
        printed.append(ended.stdout)
    assert [line.split()[2] for line in lines[1:]] == [
        *("validate", "trust", "run", "respond", "resume", "respond", "resume", "show"),
    ]
    assert "raises ValueError" in printed[5]
    assert "raises ValueError" not in printed[3]
    assert "✓ summarize" in printed[-1]
    assert unittests(folder / "project").returncode == 0


class Page(HTMLParser):
    """What leads where, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids = set[str]()
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_charts_and_page_of_the_data_analyst_match_the_data(play: Play):
    folder, events = play("data-analyst")
    with (folder / "data" / "crossings.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    rows = [r for r in {tuple(r.values()): r for r in listed}.values() if all(r.values())]
    routes = {row["route"] for row in rows}
    months = {row["week"][:7] for row in rows}
    assert marks(folder / "out" / "passengers.svg", "circle") == len(routes) * len(months)
    assert marks(folder / "out" / "late.svg", "rect") == len(routes)
    text, inked = read_pdf(folder / "out" / "report.pdf")
    assert inked > 0.02
    assert f"{len(listed)} rows, {len(rows)} used (1 reported twice, 2 without numbers)" in text
    for name in ("", *routes):
        own = [row for row in rows if name in ("", row["route"])]
        assert f"{sum(int(row['passengers']) for row in own):,}" in text
        assert f"{sum(Decimal(row['revenue_eur']) for row in own):,.0f}" in text
        late = sum(int(row["late"]) for row in own) / sum(int(row["crossings"]) for row in own)
        assert f"{100 * late:.1f} %" in text
    script = (folder / "offline.yaml").read_text()
    assert f"{sum(int(row['passengers']) for row in rows)}" not in script.replace(",", "")
    assert published_artifacts(events) == {
        f"out/{n}" for n in ("report.pdf", "passengers.svg", "late.svg")
    }


def marks(file: Path, shape: str) -> int:
    drawn = ET.fromstring(file.read_text()).iter(f"{SVG}{shape}")
    return sum(element.get("class") == "mark" for element in drawn)


def read_pdf(file: Path) -> tuple[str, float]:
    """The text of a PDF's only page in one line, and how much of it is not white."""
    with pypdfium2.PdfDocument(file) as document:
        assert len(document) == 1
        page: Any = document[0]  # what it says of its arguments is wrong
        text = page.get_textpage().get_text_range()
        pixels = bytes(page.render(scale=0.5).buffer)
    return " ".join(text.split()), 1 - pixels.count(255) / len(pixels)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_validates_and_its_skills_are_valid(name: str, environ: dict[str, str]):
    ended = fork_server.run("validate", cwd=EXAMPLES / name, env=environ)
    assert (ended.returncode, "0 errors, 0 warnings" in ended.stdout) == (0, True), ended.stdout
    for skill in (EXAMPLES / name / "skills").iterdir():
        assert check_strict(skill) == []


def test_the_table_of_examples_is_complete():
    text = (EXAMPLES / "README.md").read_text()
    found = {file.parent.name for file in EXAMPLES.glob("*/agent.yaml")}
    assert found == {*NAMES, WORKFLOW} == set(re.findall(r"\]\(([\w-]+)/README\.md\)", text))
