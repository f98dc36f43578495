"""What an agent leaves outside of its workspace is nothing, whatever tool it tries it with."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.abilities import require_hidden_files
from tests.harness.session_setup import echo
from tests.session_e2e.session_setup import DONE, Scene, begin, read_by_model

from mainspring.capabilities.providers.scripted import ScriptLine, calls
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.core import ids
from mainspring.core.errors import InvalidInput
from mainspring.core.events import WorkspaceSnapshotted
from mainspring.harness.permissions.protected_path_watcher import PROTECTED_PATHS

SECRET = "what stands outside"


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file with what changes when somebody writes to it, but for what Mainspring keeps there:
    the installation's key and which sandboxes it has tested."""
    found: dict[str, tuple[int, int, int]] = {}
    own = {folder / ".mainspring" / name for name in ("", "vault.key", "sandboxes.json")}
    for path in set(folder.rglob("*")) - own:
        entry = path.lstat()
        found[str(path)] = (entry.st_mode, entry.st_size, entry.st_mtime_ns)
    return found


async def test_writes_outside_the_workspace_have_no_effect(scene: Scene):
    name = ids.new_id("mark")
    targets = [f"{scene.home}/{name}", f"/etc/{name}", f"/tmp/{name}", f"/var/tmp/{name}"]
    targets += [f"{scene.outside}/{name}", f"/dev/shm/{name}", f"../{name}", f"~/{name}"]
    steps = [calls("write", file_path=target, content="x") for target in targets]
    steps += [calls("bash", command=f"touch {t}; echo x > {t}; true") for t in targets]
    steps += [calls("python", code=f"open({target!r}, 'w').write('x')") for target in targets[:4]]
    before = state(scene.home)
    async with scene.play(*steps, mode="bypassPermissions") as play:
        await play.run()
        assert len(await play.results()) == len(steps)
    for folder in (scene.home, Path("/etc"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        assert not (folder / name).exists()
    assert not (scene.outside / name).exists()
    assert state(scene.home) == before


async def test_the_log_is_out_of_reach_of_its_session(scene: Scene):
    require_hidden_files()
    database = ".mainspring/mainspring.db"
    async with scene.play(
        calls("bash", command=f"ls -la .mainspring; cat {database}; rm -rf .mainspring; true"),
        calls("bash", command="mv .mainspring elsewhere; mkdir .mainspring; echo > .mainspring/x"),
        calls("read", file_path=database),
        calls("write", file_path=".mainspring/settings.local.json", content="{}"),
        calls("write", file_path=".mainspring/settings.json", content="{}"),
        calls("glob", pattern="**/*.db"),
        calls("grep", pattern="agent", path=".mainspring"),
        calls("artifact", path=database),
        calls("bash", command=f"ln -s {database} copy; cat copy; ln {database} hard; cat hard"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
        assert "SQLite format" not in read_by_model(play.model.requests)
    assert not (scene.workspace / "elsewhere").exists()
    assert not (scene.workspace / "hard").exists()
    kept = {path.name for path in (scene.workspace / ".mainspring").iterdir()}
    assert kept.isdisjoint({"x", "settings.local.json", "settings.json"})
    with closing(sqlite3.connect(scene.workspace / database)) as connection, connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def through(link: str, file: str) -> list[ScriptLine]:
    """Every tool that takes a path, on one that leads out."""
    return [
        calls("read", file_path=f"{link}/{file}"),
        calls("write", file_path=f"{link}/{file}", content="changed"),
        calls("write", file_path=f"{link}/new.txt", content="changed"),
        calls("edit", file_path=f"{link}/{file}", old_string="stands", new_string="changed"),
        calls("grep", pattern="stands", path=link),
        calls("grep", pattern="stands"),
        calls("glob", pattern=f"{link}/*"),
        calls("artifact", path=f"{link}/{file}"),
        calls("bash", command=f"cat {link}/{file}; echo changed > {link}/{file}; true"),
    ]


async def test_links_do_not_lead_out_of_the_workspace(scene: Scene):
    outside = scene.outside / "elsewhere"
    scene.write(outside / "notes.txt", SECRET)
    before = state(outside)
    link = f"ln -s {outside} out; ln -s ../elsewhere up; ln -s {outside}/notes.txt file"
    steps = [calls("bash", command=link), *through("out", "notes.txt"), *through("up", "notes.txt")]
    steps += [
        calls("read", file_path="file"),
        calls("write", file_path="file", content="changed"),
        calls("artifact", path="file"),
        calls("bash", command=f"ln {outside}/notes.txt hard; cat hard file; true"),
        calls("python", code="print(open('file').read())"),
    ]
    async with scene.play(*steps, mode="bypassPermissions") as play:
        await play.run()
        assert SECRET not in read_by_model(play.model.requests)
        assert len(await play.results()) == len(steps)
    assert state(outside) == before
    assert not (scene.workspace / "hard").exists()


async def test_an_existing_hard_link_is_not_written_through(scene: Scene):
    """Somebody has linked a file of theirs into the project: it is replaced, not changed."""
    theirs = scene.write(scene.outside / "theirs.txt", SECRET)
    os.link(theirs, scene.workspace / "shared.txt")
    async with scene.play(
        calls("read", file_path="shared.txt"),
        calls("edit", file_path="shared.txt", old_string="outside", new_string="changed"),
        calls("write", file_path="shared.txt", content="changed"),
        mode="bypassPermissions",
    ) as play:
        await play.run()
    assert theirs.read_text() == SECRET


async def test_programs_cannot_change_protected_paths(scene: Scene):
    require_hidden_files()
    for name in PROTECTED_PATHS:
        scene.write(f"{name}/file" if "." not in name.rpartition("/")[2][1:] else name, "mine")
    before = {name: state(scene.workspace / name) for name in PROTECTED_PATHS}
    tries = "; ".join(
        f"echo x > {name}; echo x > {name}/file; echo x > {name}/new; rm -rf {name};"
        f" mv {name} {name}.old; chmod 777 {name}"
        for name in PROTECTED_PATHS
    )
    scene.write("tries.sh", tries.replace("; ", "\n"))
    scene.write("move.sh", "mv .git .git.old\nmkdir -p .git/hooks\necho x > .git/hooks/pre-commit")
    async with scene.play(
        *(calls("bash", command=f"sh {i}.sh") for i in ("tries", "move")), mode="bypassPermissions"
    ) as play:
        await play.run()
        refusals = ("Read-only file system", "Operation not permitted", "Permission denied")
        tried = (await play.results())[0]
        assert any(refusal in tried for refusal in refusals)
    assert {name: state(scene.workspace / name) for name in PROTECTED_PATHS} == before
    assert all((scene.workspace / name).exists() for name in PROTECTED_PATHS)


async def test_files_denied_for_reading_are_hidden_from_programs(scene: Scene):
    require_hidden_files()
    scene.user(permissions={"deny": ["Read(.env)", "Read(secrets/**)"]})
    scene.write("sub/.env", SECRET)
    scene.write("secrets/key.txt", SECRET)
    steps = [
        calls("bash", command="cat sub/.env secrets/key.txt"),
        calls("bash", command="f=sub/.en; cat ${f}v; cd secrets; cat *; cd ..; grep -r stands ."),
        calls("bash", command="python3 -c \"print(open('sub/.e'+'nv').read())\""),
        calls("read", file_path="sub/.env"),
        calls("grep", pattern="stands"),
        calls("glob", pattern="secrets/*"),
        calls("artifact", path="secrets/key.txt"),
        calls("python", code="print(open('secrets/key.txt').read())"),
        calls("bash", command="ln -s secrets/key.txt alias; cat alias; cp -r secrets copy; true"),
        calls("read", file_path="alias"),
    ]
    async with scene.play(*steps, mode="bypassPermissions") as play:
        await play.run()
        assert SECRET not in read_by_model(play.model.requests)
        assert len(await play.results()) == len(steps)


async def test_every_turn_with_effects_can_be_rewound(scene: Scene):
    require_hidden_files()
    scene.write("a.txt", "first\n")
    async with scene.play(
        calls("bash", command="echo second > a.txt; mkdir d; echo new > d/b.txt"),
        calls("read", file_path="a.txt"),
        calls("bash", command="rm -rf d; chmod +x a.txt"),
        DONE,
        mode="bypassPermissions",
    ) as play:
        await play.run()
        taken = [event.snapshot for event in await play.events(WorkspaceSnapshotted)]
        assert len(taken) == 3  # before the first effect, and after each turn with one
        store = next((scene.workspace / ".mainspring/snapshots").iterdir())
        snaps = WorkspaceSnapshots(FolderWorkspace(scene.workspace, hidden=[".mainspring"]), store)
        await snaps.restore(taken[1])
        assert (scene.read("a.txt"), scene.read("d/b.txt")) == ("second\n", "new\n")
        await snaps.restore(taken[0])
        assert scene.read("a.txt") == "first\n"
        assert not (scene.workspace / "d").exists()
        assert (scene.workspace / ".mainspring/mainspring.db").exists()


async def test_a_home_folder_is_not_accepted_as_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    narrow = Scene(home=tmp_path / "all/home", workspace=tmp_path / "all", outside=tmp_path)
    narrow.home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(narrow.home))
    async with narrow.runtime("bypassPermissions") as runtime:
        play = await begin(runtime, calls("bash", command="touch x"))
        await play.run()
        assert not any(spec.name == "bash" for spec in play.model.requests[0].tools)
        assert any("is not a project" in warning for warning in narrow.warnings)
        assert not (narrow.workspace / "x").exists()
        play = await begin(runtime, calls("look"), tools=[echo("look")])
        with pytest.raises(InvalidInput, match="is not a project"):
            await play.run()  # its own tools would run without any rules
        assert play.model.requests == []
