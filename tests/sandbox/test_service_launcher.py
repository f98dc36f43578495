"""The launcher of a container: what a server that was taken over cannot do with what it has."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.cli.upstream import call, serving
from tests.confined_command import run_confined
from tests.environ import clean_environ
from tests.sandbox.conftest import SERVICE_UID

from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.capabilities.sandbox.backends.session_uids import available_uids

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock_abi() < ENOUGH_ABI or os.geteuid() != 0,
    reason="a container that begins as root, and Landlock, are needed",
)
ROOT = "import os; os.setgid(0); os.setuid(0); {}"
LIBC = "import ctypes, sys; libc = ctypes.CDLL(None); sys.exit({} != 0)"
GAIN = (
    "import struct; from mainspring.capabilities.sandbox.backends.linux_capabilities import *;"
    " set_capabilities(range(38))"
)
ATTACKS = {
    "write to a file of root": "echo x >> {other}/file",
    "write to a file of root as root": ROOT.format('open("{other}/file", "a").write("x")'),
    "make a file in a folder of root": "touch {other}/new",
    "make a file in a folder of root as root": ROOT.format('open("{other}/new2", "w")'),
    "make a folder there": "mkdir {other}/folder",
    "replace a file of root": "echo x > mine && mv mine {other}/file2",
    "remove a file of root": "rm -f {other}/file3",
    "truncate a file of root": "truncate -s 0 {other}/file4",
    "link a file of root into its own folder": "ln {other}/file linked && echo x >> linked",
    "write to a file of root by a link": "ln -sf {other}/file soft && echo x >> soft",
    "read a private file of root": "cat {other}/private",
    "read a private file as root": ROOT.format('print(open("{other}/private").read())'),
    "list a folder of root": "ls {other}",
    "read the passwords": "head -c 1 /etc/shadow",
    "change the system's programs": "touch /usr/local/bin/msp-test && rm /usr/local/bin/msp-test",
    "end the launcher": "kill -9 {victim}",
    "end the launcher as root": ROOT.format("os.kill({victim2}, 9)"),
    "stop the launcher": "kill -STOP {victim}",
    "trace the launcher": LIBC.format("libc.ptrace(16, {victim}, 0, 0)"),
    "read the launcher's variables as root": ROOT.format('open("/proc/{victim}/environ").read(1)'),
    "read the launcher's memory as root": ROOT.format('open("/proc/{victim}/mem").close()'),
    "reach files through the launcher": ROOT.format('os.listdir("/proc/{victim}/cwd/")'),
    "read the launcher's files": ROOT.format('os.readlink("/proc/{victim}/fd/0")'),
    "use a set-uid program": (
        "cp /bin/bash s && chown 0 s && chmod 4755 s && ./s -p -c 'echo x > {other}/suid'"
    ),
    "make a device": "mknod device c 1 1",
    "change the root folder": "chroot {own} /bin/true || chroot / /bin/true",
    "open a raw socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
    "give a program capabilities": "cp /bin/true c && setcap cap_net_raw+ep c",
    "gain all capabilities": GAIN,
    "mount": "mount -t tmpfs none {own}",
    "make a namespace": "unshare -m true",
    "change the host's name": "hostname changed",
    "set the clock": "date -s '2001-01-01'",
    "load a module": LIBC.format('libc.syscall(313, -1, b"", 0)'),
    "reach an abstract socket": (
        'import socket; socket.socket(socket.AF_UNIX).connect("\\0{listener}")'
    ),
}
FORBIDDEN_BY_THE_CONTAINER = {
    *("gain all capabilities", "mount", "make a namespace", "change the host's name"),
    *("set the clock", "load a module", "trace the launcher", "give a program capabilities"),
}
"""No control succeeds there."""
RUN = """
import json, subprocess, sys
victims = []
for name, attack in json.loads(sys.argv[1]).items():
    if sys.argv[2]:
        attack = attack.replace("{victim}", sys.argv[2])
    else:
        victims.append(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL))
        attack = attack.replace("{victim}", str(victims[-1].pid))
    is_python = attack.startswith("import ")
    command = [sys.executable, "-c", attack] if is_python else ["bash", "-c", attack]
    ran = subprocess.run(command, capture_output=True, timeout=60)
    if ran.returncode == 0:
        print(name)
for victim in victims:
    victim.kill()
print("done", flush=True)
"""
LAUNCH = """
import os, socket, subprocess, sys
from pathlib import Path
from mainspring.capabilities.sandbox.backends.service_launcher import Server, run_server
code, attacks, own, uid, listener = sys.argv[1:]
listening = socket.socket(socket.AF_UNIX); listening.bind("\\0" + listener); listening.listen()
os.environ["SECRET"] = "of the launcher"
command = [sys.executable, "-c", code, attacks, "" if uid == "0" else str(os.getpid())]
server = Server(command=command, environment={"PATH": os.environ["PATH"]}, uid=int(uid),
                gid=int(uid), groups=[], folders=[Path(own)])
os.chdir(own)
if uid == "0":
    sys.exit(subprocess.run(command).returncode)
sys.exit(run_server(server))
"""


@pytest.fixture
def place() -> Generator[Path]:
    """Outside of the folders for temporary files, which belong to the server."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def succeeded(place: Path, uid: int) -> tuple[set[str], Path]:
    own, other = place / f"own{uid}", place / f"other{uid}"
    own.mkdir()
    other.mkdir()
    os.chown(own, uid, uid)
    for name in ("file", "file2", "file3", "file4", "private"):
        (other / name).write_text("as it was\n")
    (other / "private").chmod(0o600)
    listener = f"mainspring-test-{os.getpid()}-{uid}"
    with subprocess.Popen(["sleep", "600"]) as bystander:
        facts = {"own": own, "other": other, "victim2": bystander.pid, "listener": listener}
        attacks = {
            name: attack.format(**facts, victim="{victim}") for name, attack in ATTACKS.items()
        }
        try:
            ran = run_confined(
                *(
                    sys.executable,
                    "-c",
                    LAUNCH,
                    RUN,
                    json.dumps(attacks),
                    str(own),
                    str(uid),
                    listener,
                )
            )
        finally:
            bystander.kill()  # also where this skips the test
    assert ran.returncode == 0, ran.stderr
    *won, done = ran.stdout.splitlines()
    assert done == "done"
    return set(won), other


def test_a_server_that_was_taken_over_reaches_neither_the_container_nor_the_launcher(place: Path):
    won, other = succeeded(place, SERVICE_UID)
    assert won == set()
    assert {file.name: file.read_text() for file in other.iterdir()} == dict.fromkeys(
        ("file", "file2", "file3", "file4", "private"), "as it was\n"
    )


def test_without_the_launcher_these_attacks_succeed(place: Path):
    won, _ = succeeded(place, 0)
    assert set(ATTACKS) - won <= FORBIDDEN_BY_THE_CONTAINER


@pytest.mark.parametrize("options", [(), ("--no-new-privs",)], ids=["default", "no-new-privileges"])
def test_the_server_of_a_container_runs_commands_with_uids_of_their_own(
    place: Path, options: tuple[str, ...]
):
    project = place / "project"
    project.mkdir()
    with serving() as upstream:
        script = "id -u; cat /proc/self/status | grep Cap; echo more >> out/report.md; cat out/*"
        upstream.says(call("write", file_path="out/report.md", content="report\n"))
        upstream.says(call("bash", command=script), call("bash", command="cat .mainspring/*"))
        upstream.says("Done.")
        ran = run_confined(
            *(sys.executable, "-c", COMMAND, "run", "go", "--mode", "bypassPermissions"),
            environment={**clean_environ(), **upstream.variables, "MAINSPRING_USER": "10001"},
            folder=project,
            options=options,
        )
    assert ran.returncode == 0, ran.stderr
    _, shown, hidden = [
        item["content"] for item in upstream.requests[-1]["messages"] if item["role"] == "tool"
    ]
    assert int(shown.split()[0]) in available_uids()
    assert shown.endswith("report\nmore\n") or "report\nmore" in shown
    assert "SQLite" not in hidden
    assert (project / ".mainspring").stat().st_uid == SERVICE_UID


COMMAND = "from mainspring.edges.cli.operate.container_launcher import main; main()"
