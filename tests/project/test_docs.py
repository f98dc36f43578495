"""The documents tell of everything there is, link to what exists, and show what happens."""

import re
import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.row_checks import for_each

import mainspring
from mainspring import Agent, Tool, error_table, run
from mainspring.capabilities.providers.catalog import Catalog, ModelListing
from mainspring.capabilities.providers.provider_table import PROVIDERS
from mainspring.capabilities.sandbox.backend_selection import BackendName
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.config import read_settings
from mainspring.core.envelope import PAYLOAD_TYPES
from mainspring.core.events import Failure
from mainspring.edges.api.route_table import all_routes
from mainspring.edges.cli.app import COMMANDS
from mainspring.error_table import ErrorEntry
from mainspring.function_tools.define import ToolOptions
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import MODES
from mainspring.harness.stop_reasons import ContinueReason, EndReason
from mainspring.service.approvals.approval_policy import SetApprovalPolicy
from mainspring.service.schedules.cron import SchedulePolicy
from mainspring.service.webhooks.webhook_events import EVENT_TYPES
from mainspring.testing import Scripted, says
from mainspring.tools import Traits
from mainspring.wiring.service_assembly import open_service

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def rows() -> dict[str, str]:
    """The line of docs/events.md about each type."""
    text = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    return {row[1]: row[0] for row in re.finditer(r"^\| `([a-z_.]+)` \|.*$", text, re.MULTILINE)}


def test_the_errors_page_matches_the_table_and_python_hints_have_no_options():
    page = runpy.run_path(str(ROOT / "tools/errors_page.py"))["page"]()
    written = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    assert written == page, "run: python tools/errors_page.py"
    entries = [var for var in vars(error_table).values() if isinstance(var, ErrorEntry)]
    assert len(entries) > 30
    in_python = [words for entry in entries for words in (entry.in_python or entry.fix)]
    assert [words for words in in_python if "--" in words] == []


def test_exactly_the_existing_event_types_are_documented():
    assert set(rows()) == set(PAYLOAD_TYPES)


@for_each("kind", PAYLOAD_TYPES)
def test_every_field_of_an_event_is_documented(kind: str):
    fields = msgspec.structs.fields(PAYLOAD_TYPES[kind])
    expected = [f"`{item.encode_name}`{'' if item.required else '?'} " for item in fields]
    assert [field for field in expected if field not in rows()[kind]] == []


@pytest.mark.parametrize(
    ("document", "names"),
    [
        pytest.param("python.md", mainspring.__all__, id="public names"),
        pytest.param("python.md", ToolOptions.__annotations__, id="options of a tool"),
        pytest.param("harness.md", get_args(EndReason), id="terminal reasons"),
        pytest.param("harness.md", get_args(ContinueReason), id="continue reasons"),
        pytest.param("tools.md", Tool.__slots__, id="parts of a tool"),
        pytest.param("tools.md", Traits.__slots__, id="traits of a call"),
        pytest.param("tools.md", get_args(Failure), id="failures"),
        pytest.param("permissions.md", MODES, id="modes"),
        pytest.param("sandbox.md", get_args(BackendName), id="backends"),
        pytest.param(
            "sandbox.md", SandboxEnvironment.__struct_encode_fields__, id="sandbox settings"
        ),
        pytest.param(
            "sandbox.md",
            type(SandboxEnvironment().limits).__struct_encode_fields__,
            id="sandbox limits",
        ),
        pytest.param("schedules.md", SchedulePolicy.__struct_fields__, id="policy of a schedule"),
        pytest.param(
            "extensions.md", SetApprovalPolicy.__struct_fields__, id="policy of approvals"
        ),
        pytest.param("models.md", PROVIDERS, id="providers"),
        pytest.param("models.md", ModelListing.__struct_fields__, id="facts about a model"),
    ],
)
def test_every_name_is_listed_in_a_table(document: str, names: Iterable[str]):
    assert [name for name in names if name not in table_names(document)] == []


def table_names(document: str) -> set[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_built_in_tool_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    model = Scripted(says("Hello."))
    run(Agent(built_ins=["*"]), "Hello?", model=model, store="tools.db")
    assert {tool.name for tool in model.requests[0].tools} <= table_names("tools.md")


def test_every_limit_is_documented():
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert [name for name in Limits.__slots__ if f"`{name}`" not in text] == []


async def test_every_endpoint_is_documented_with_its_role(tmp_path: Path):
    settings = read_settings(store=str(tmp_path / "house.db"), environ={}, folder=tmp_path)
    async with open_service(settings) as service:
        routes = all_routes(service)
    served = {False: set[tuple[str, ...]](), True: set[tuple[str, ...]]()}
    for route in routes:
        role = "none" if route.is_open else route.role
        served[route.is_extension].add((route.method, route.path, role, route.summary))
    assert endpoints("api.md") == served[False]
    assert endpoints("extensions.md") == served[True]


def endpoints(document: str) -> set[tuple[str, ...]]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    row = r"^\| (GET|POST|DELETE) \| `(\S+)` \| (\w+) \| (.+?) \|"
    return set(re.findall(row, text, re.MULTILINE))


def test_every_webhook_event_is_documented():
    text = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ((?:`\w+\.\*`(?:, )?)+) \| (.+) \|$", text, re.MULTILINE))
    told = {
        f"{kind}.{name}"
        for kinds, names in rows.items()
        for kind in re.findall(r"`(\w+)\.\*`", kinds)
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names)
    }
    assert [name for name in EVENT_TYPES if name not in told] == []


def test_every_command_is_documented():
    pages = sorted((ROOT / "docs/cli").glob("*.md"))
    titles = "\n".join(page.read_text(encoding="utf-8").partition("\n")[0] for page in pages)
    assert [name for name in COMMANDS if f"`mainspring {name}" not in titles] == []


def examples() -> Iterable[object]:
    """Programs that are followed by what they print."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        found = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.DOTALL)
        for number, (program, printed) in enumerate(found, 1):
            yield pytest.param(program, printed, id=f"{document.name} {number}")


@pytest.mark.parametrize(("program", "printed"), list(examples()))
def test_an_example_prints_what_the_document_says(
    program: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    file = tmp_path / "example.py"
    file.write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAINSPRING_STORE", "example.db")
    runpy.run_path(str(file))
    assert capsys.readouterr().out == printed


def test_the_example_models_file_is_valid(tmp_path: Path):
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    file = tmp_path / "models.toml"
    file.write_text("".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    assert Catalog.load(file).lookup("local").window == 40_960


@for_each("document", DOCUMENTS)
def test_links_between_documents_lead_to_existing_sections(document: Path):
    text = document.read_text(encoding="utf-8")
    broken: list[str] = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        place, _, section = link.partition("#")
        target = (document.parent / place) if place else document
        if not target.exists() or (section and section not in sections(target)):
            broken.append(link)
    assert broken == []


def sections(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
