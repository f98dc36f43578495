"""Folders that mean ill, run as they are: nothing of the machine, and nothing that was forbidden,
comes out."""

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run
from tests.cli.upstream import Upstream, call
from tests.written_files import write_file

FREE = ("--mode", "bypassPermissions")


def results(upstream: Upstream) -> str:
    messages: list[dict[str, Any]] = upstream.requests[-1]["messages"]
    return "\n".join(str(message["content"]) for message in messages if message["role"] == "tool")


def test_a_linked_skill_reveals_nothing_of_the_machine(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    secrets = Path(environ["HOME"], "secrets")
    write_file(secrets / "key", "TOP SECRET")
    for name in ("one", "two"):
        skill = place / "skills" / name
        write_file(skill / "SKILL.md", f"---\nname: {name}\ndescription: d\n---\nhi\n")
    links = f"ln -s {secrets} skills/one; ln -s ../.mainspring skills/two"
    upstream.says(call("bash", command=f"rm -r skills/*; {links}"))
    upstream.says("ok")
    upstream.says(
        call("read", file_path="skills/one/key"),
        call("bash", command="cat skills/one/key; ls skills/two/"),
        call("glob", pattern="skills/two/*"),
    )
    upstream.says("ok")
    assert mainspring("run", "a", *FREE, **upstream.variables).returncode == 0
    session = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    again = mainspring("run", "b", "--resume", session, *FREE, **upstream.variables)
    assert again.returncode == 0, again.stderr
    told = results(upstream)
    assert "TOP SECRET" not in told
    assert "mainspring.db" not in told


def test_instructions_cannot_import_a_file_denied_for_reading(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    settings = Path(environ["HOME"], ".mainspring", "settings.json")
    write_file(settings, json.dumps({"permissions": {"deny": ["Read(./.env)"]}}))
    (place / ".env").write_text("TOKEN=sesame\n")
    (place / "notes.md").write_text("The notes.\n")
    (place / "CLAUDE.md").write_text("See @.env and @notes.md\n")
    upstream.says("ok")
    ran = mainspring("run", "hello", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    sent = json.dumps(upstream.requests[0])
    assert "The notes." in sent
    assert "sesame" not in sent
