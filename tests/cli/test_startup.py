"""Starting the command: help, version, options, and how failures look."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from pkgutil import iter_modules
from subprocess import run

import pytest
from tests.fork_server import Run

from mainspring import __version__
from mainspring.config import Settings
from mainspring.edges import cli
from mainspring.edges.cli.action_runner import run_action
from mainspring.edges.cli.app import COMMANDS as ENTRIES
from mainspring.edges.cli.app import app
from mainspring.edges.cli.main import hoist_global_options

HEAVY = {"aiohttp", "anyio", "msgspec", "psycopg", "pydantic", "rich", "rich.markdown", "sqlite3"}
TELL_IMPORTS = """
import atexit, sys
def tell():
    modules = [name for name, module in sys.modules.items() if getattr(module, "__file__", None)]
    print(*modules, sep="\\n", file=sys.stderr)
atexit.register(tell)
sys.argv[0] = "mainspring"
from mainspring.edges.cli.main import main
main()
"""


def imports_of(
    command_line: str, *, cwd: Path, environ: dict[str, str], status: int = 0
) -> set[str]:
    """Every module that the command has imported, and the packages that they are in."""
    command = [sys.executable, "-c", TELL_IMPORTS, *command_line.split()]
    result = run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60)
    assert result.returncode == status, result.stderr
    modules = result.stderr.split()
    assert "mainspring.edges.cli.main" in modules
    return {".".join(p[: n + 1]) for p in (m.split(".") for m in modules) for n in range(len(p))}


def test_version_and_help_import_no_heavy_modules(environ: dict[str, str], tmp_path: Path):
    assert "typer" not in imports_of("--version", cwd=tmp_path, environ=environ)
    for words in ("--help", "log show -h", "models --help --store x", "run --model --help"):
        imported = imports_of(words, cwd=tmp_path, environ=environ)
        assert HEAVY & imported == set()
        assert "typer" in imported


HELP_OF_ALL = """
import sys
from mainspring.edges.cli.main import PlaceholderImporter
if sys.argv[1] == "placeholders":
    sys.meta_path.insert(0, PlaceholderImporter())
from mainspring.edges.cli.app import COMMANDS, app
from typer.main import get_command
def show(command, name, parent):
    context = command.context_class(command, info_name=name, parent=parent)
    print(command.get_help(context))
    for child in getattr(command, "commands", {}):
        show(command.commands[child] if parent else command.load(child), child, context)
show(get_command(app), "mainspring", None)
"""


def test_help_is_the_same_without_importing_command_implementations(
    environ: dict[str, str], tmp_path: Path
):
    outputs = [
        run(
            [sys.executable, "-c", HELP_OF_ALL, imports],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for imports in ("placeholders", "real")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("Usage: mainspring") > 100


def test_help_lists_every_command_without_importing_it(environ: dict[str, str], tmp_path: Path):
    imported = imports_of("--help", cwd=tmp_path, environ=environ)
    assert not {f"{cli.__name__}.{entry.module}" for entry in ENTRIES.values()} & imported


@pytest.mark.parametrize("name", ENTRIES)
def test_help_of_a_command_begins_with_its_summary(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        app([name, "--help"], prog_name="mainspring")
    assert ENTRIES[name].summary in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "option"),
    [("halt", "--agent"), ("resume", "--agent"), ("serve", "--metrics"), ("worker", "--metrics")],
)
def test_documented_options_are_in_the_help(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        app([name, "--help"], prog_name="mainspring")
    assert option in capsys.readouterr().out.split()


def test_shell_completion_completes_commands_and_options(environ: dict[str, str], place: Path):
    ask = """
        eval "$(mainspring completion bash)"
        COMP_WORDS=(mainspring ses) COMP_CWORD=1
        _mainspring_completion mainspring; echo "${COMPREPLY[*]}"
        COMP_WORDS=(mainspring run --max) COMP_CWORD=2
        _mainspring_completion mainspring; echo ${COMPREPLY[*]}
    """
    path = f"{Path(sys.executable).parent}:{environ['PATH']}"
    result = run(
        ["bash", "--norc", "-c", ask],
        cwd=place,
        env={**environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    limits = ["--max-turns", "--max-cost", "--max-budget-usd", "--max-iterations"]
    assert result.stdout.split() == ["sessions", *limits], result.stderr


def test_an_offline_run_imports_only_what_it_needs(environ: dict[str, str], place: Path):
    imported = imports_of("run hello", cwd=place, environ=environ)
    assert "mainspring.capabilities.workspace" in imported
    unused = {
        "aiohttp",
        "cryptography",
        "mainspring.capabilities.hooks",
        "mainspring.capabilities.network",
        "mainspring.capabilities.vault.vault_file",
        "psycopg",
        "pydantic_monty",
    }
    assert unused & imported == set()


@pytest.mark.parametrize(
    ("command", "status"), [("ls", 0), ("show {}", 0), ("fork {}", 0), ("answer {} none allow", 1)]
)
def test_listing_and_answering_sessions_imports_no_providers_sandbox_or_tools(
    environ: dict[str, str], place: Path, session_id: str, command: str, status: int
):
    command_line = f"sessions {command.format(session_id)}"
    imported = imports_of(command_line, cwd=place, environ=environ, status=status)
    assert "mainspring.log.sqlite" in imported
    unused = {
        "aiohttp",
        "cryptography",
        "mainspring.capabilities.providers",
        "mainspring.capabilities.sandbox",
        "mainspring.capabilities.tools",
        "tree_sitter",
        "yaml",
    }
    assert unused & imported == set()


@pytest.mark.slow
@pytest.mark.parametrize("module", [found.name for found in iter_modules(cli.__path__)])
def test_any_module_can_be_imported_first(environ: dict[str, str], tmp_path: Path, module: str):
    command = [sys.executable, "-c", f"import {cli.__name__}.{module}"]
    run(command, cwd=tmp_path, env=environ, check=True, timeout=60)


def test_the_version_is_that_of_the_package(mainspring_from_nothing: Run):
    assert mainspring_from_nothing("--version").stdout == f"mainspring {__version__}\n"


def test_running_without_arguments_shows_the_help(mainspring: Run, mainspring_from_nothing: Run):
    result = mainspring()
    assert result.returncode == 0
    assert result.stdout == mainspring_from_nothing("--help").stdout
    assert "doctor" in result.stdout


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion(mainspring: Run):
    result = mainspring("log", "shwo")
    assert result.returncode == 2
    assert "Did you mean 'show'?" in result.stderr


def test_global_options_are_accepted_anywhere():
    assert hoist_global_options(["log", "ls", "--store", "x", "--json", "--debug"]) == (
        ["--store", "x", "--debug"],
        ["log", "ls", "--json"],
    )
    assert hoist_global_options(["log", "ls", "--store=x"]) == (["--store=x"], ["log", "ls"])
    arguments = ["log", "search", "--", "--store"]
    assert hoist_global_options(arguments) == ([], arguments)


def test_an_expected_failure_is_one_line_and_a_hint(mainspring: Run, session_id: str):
    del session_id
    result = mainspring("log", "show", "nothing-like-it")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "error: no session nothing-like-it",
        "hint: `mainspring log ls` lists the sessions",
    ]


def test_a_database_of_another_program_is_refused_and_left_unchanged(
    mainspring: Run, tmp_path: Path
):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db, db:
        db.execute("create table mine(x)")
    db.close()
    before = other.read_bytes()
    result = mainspring("log", "ls", "--store", str(other))
    assert result.returncode == 1
    assert "does not belong to Mainspring" in result.stderr
    assert other.read_bytes() == before


async def broken(settings: Settings) -> int:
    return 1 // (0 if settings.store else 1)


def test_a_bug_is_reported_in_brief_and_with_a_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MAINSPRING_DEBUG", raising=False)
    assert run_action(broken, store="x.db", debug=False) == 1
    short = capsys.readouterr().err
    assert short.startswith("error: ZeroDivisionError")
    assert "MAINSPRING_DEBUG=1" in short
    assert "Traceback" not in short
    assert run_action(broken, store="x.db", debug=True) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("MAINSPRING_DEBUG", "1")
    assert run_action(broken, store="x.db", debug=False) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_impossible_store_path_is_reported(mainspring: Run, tmp_path: Path):
    (tmp_path / "file").touch()
    result = mainspring("log", "import", "-", "--store", f"{tmp_path / 'file'}/below.db")
    assert result.returncode == 1
    assert str(tmp_path / "file") in result.stderr
    assert "this is a bug" not in result.stderr


def test_an_unsupported_store_url_is_refused_without_showing_its_password(mainspring: Run):
    result = mainspring("log", "ls", "--store", "mysql://me:hunter2@host/db?password=hunter2")
    assert result.returncode == 1
    assert "mysql://me:***@host/db" in result.stderr
    assert "hunter2" not in result.stderr


def test_the_store_is_found_from_a_subfolder(mainspring: Run, place: Path, session_id: str):
    below = place / "a" / "b"
    below.mkdir(parents=True)
    assert session_id in mainspring("log", "ls", cwd=below).stdout


def test_options_override_environment_variables(
    mainspring: Run, store: Path, session_id: str, tmp_path: Path
):
    elsewhere = str(tmp_path / "none.db")
    found = mainspring("log", "ls", "--store", str(store), cwd=tmp_path, MAINSPRING_STORE=elsewhere)
    assert session_id in found.stdout
    assert mainspring("log", "ls", MAINSPRING_STORE=elsewhere).stdout == ""
