"""What the program of an MCP server sees outside of the workspace: its package and its interpreter,
never a home folder."""

import os
from pathlib import Path

import pytest
from tests.written_files import write_file

from mainspring.capabilities.mcp.programs.program_files import (
    ProgramPlaces,
    VisibleProgram,
    visible_program,
)
from mainspring.core.errors import McpFailed

SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64")))


@pytest.fixture
def places(tmp_path: Path) -> ProgramPlaces:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return ProgramPlaces(home=home, workspace=work, system_folders=SYSTEM, path="/usr/bin:/bin")


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    write_file(path, text)
    path.chmod(0o755)
    return path


def seen(places: ProgramPlaces, command: Path | str, *args: Path | str) -> VisibleProgram:
    found = visible_program(str(command), tuple(map(str, args)), places)
    assert found is not None
    return found


def venv(root: Path, interpreter: Path) -> Path:
    """A virtual environment with a program `tool`."""
    write_file(root / "pyvenv.cfg", f"home = {interpreter.parent}\n")
    (root / "bin").mkdir(exist_ok=True)
    (root / "bin/python").symlink_to(interpreter)
    return program(root / "bin/tool", f"#!{root}/bin/python\n")


def python_of_a_version_manager(home: Path) -> Path:
    write_file(home / ".pyenv/versions/3.12.1/lib/python3.12/os.py", "")
    return program(home / ".pyenv/versions/3.12.1/bin/python3.12", "\x7fELF")


def test_a_script_shows_its_package(places: ProgramPlaces):
    script = program(places.home / "servers/x/build/index.js")
    write_file(places.home / "servers/x/package.json", "{}")
    assert seen(places, "sh", script).folders == (places.home / "servers/x",)


def test_a_script_without_a_package_shows_its_folder_and_in_a_home_only_itself(
    places: ProgramPlaces,
):
    deep = program(places.home / "servers/x/server.py")
    assert seen(places, "bash", deep).folders == (deep.parent,)
    lone = program(places.home / "server.py")
    assert seen(places, "bash", lone).folders == (lone,)


def test_a_module_shows_all_that_was_installed_with_it(places: ProgramPlaces):
    script = program(places.home / "app/node_modules/@a/b/node_modules/c/index.js")
    write_file(places.home / "app/package.json", "{}")
    assert seen(places, "bash", script).folders == (places.home / "app",)


@pytest.mark.parametrize("link", [".local/bin/tool", "bin/tool"])
def test_a_program_of_a_virtual_environment_shows_it_and_its_interpreter(
    places: ProgramPlaces, link: str
):
    """As pipx and uv install tools: a link in a folder of `PATH`."""
    interpreter = python_of_a_version_manager(places.home)
    root = places.home / ".local/pipx/venvs/tool"
    tool = venv(root, interpreter)
    (places.home / link).parent.mkdir(parents=True)
    (places.home / link).symlink_to(tool)
    versions = places.home / ".pyenv/versions/3.12.1"
    found = seen(places, places.home / link)
    assert (found.argv, set(found.folders)) == ((str(tool),), {root, versions})
    found = seen(places, root / "bin/python", "-m", "tool")
    assert found.argv == (str(root / "bin/python"), "-m", "tool")
    assert set(found.folders) == {root, versions}


def test_a_program_of_node_is_found_by_the_path_of_the_user(places: ProgramPlaces):
    node = places.home / ".nvm/versions/node/v20"
    program(node / "bin/node", "\x7fELF")
    cli = program(node / "lib/node_modules/@x/tool/cli.js", "#!/usr/bin/env -S mynode --x\n")
    (node / "bin/mynode").symlink_to("node")
    (node / "bin/tool").symlink_to(cli)
    user = f"{node}/bin:/usr/bin"
    own = ProgramPlaces(
        home=places.home, workspace=places.workspace, system_folders=SYSTEM, path=user
    )
    found = seen(own, "tool")
    assert found.argv == (str(cli),)
    assert found.folders == (node,) or set(found.folders) == {node / "lib/node_modules", node}
    assert found.path[0] == f"{node}/bin"


def test_a_shim_is_replaced_by_its_program_or_refused(places: ProgramPlaces):
    actual = python_of_a_version_manager(places.home)
    shim = program(places.home / ".pyenv/shims/python3.12")
    own = ProgramPlaces(
        home=places.home,
        workspace=places.workspace,
        system_folders=SYSTEM,
        path=str(shim.parent),
    )
    with pytest.raises(McpFailed, match="pyenv which"):
        visible_program("python3.12", (), own)
    write_file(places.home / ".pyenv/version", "3.12.1\n")
    assert seen(own, "python3.12").argv == (str(actual),)


@pytest.mark.parametrize("kind", ["home", "above", "system", "agent"])
def test_folders_that_are_too_wide_are_refused_with_the_remedy(places: ProgramPlaces, kind: str):
    root = {
        "home": places.home,
        "above": places.home.parent,
        "agent": places.home / "agent",
        "system": places.home,
    }[kind]
    if kind == "agent":
        write_file(root / ".mainspring/mainspring.db", "")
    tool = venv(root, Path("/usr/bin/python3"))
    with pytest.raises(McpFailed, match=r"`sandbox\.readOnly`"):
        visible_program(str(tool), (), places)


def test_links_of_the_workspace_show_nothing(places: ProgramPlaces):
    secret = program(places.home / "private/x/key", "secret")
    inside = places.workspace / ".venv/bin"
    inside.mkdir(parents=True)
    (inside / "python").symlink_to(secret)
    write_file(places.workspace / ".venv/pyvenv.cfg", "home = /")
    (places.workspace / "out").symlink_to(places.home)
    for command in (inside / "python", places.workspace / "out/private/x/key"):
        assert visible_program(str(command), (), places) is None
    assert visible_program("sh", (str(places.workspace / "out/private/x/key"),), places) is None


def test_programs_of_the_system_and_of_the_workspace_need_nothing(places: ProgramPlaces):
    own = program(places.workspace / "server")
    for command in ("sh", "/bin/sh", "./server", str(own), "no-such-program", "/no/such"):
        assert visible_program(command, ("-c", "true"), places) is None
    assert os.path.exists("/bin/sh")
