"""Count the distinct Mainspring functions that run before the model is asked, in three walks.

`python tools/walk.py` prints one line for each walk; `--list` also prints the functions.
run   `mainspring run "hi"`, from the command line to the first `Model.stream`
post  POST of a user message to a service, from the request to `Model.stream`
bash  one `bash` call, from one `Model.stream` to the next
The machine has run Mainspring before: the sandbox has been tried out, and the folder has a store.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "mainspring") + os.sep
PROVIDERS = os.path.join(SOURCE, "capabilities", "providers") + os.sep
BASH_SCRIPT = [
    {
        "steps": [
            {"calls": [{"tool": "bash", "input": {"command": "touch made.txt"}}]},
            {"says": "done"},
        ]
    }
]
WALKS = ("run", "post", "bash")
SECONDS = 60


def is_stream(frame: FrameType) -> bool:
    return frame.f_code.co_name == "stream" and frame.f_code.co_filename.startswith(PROVIDERS)


def is_inside_stream(frame: FrameType) -> bool:
    outer = frame.f_back
    while outer is not None and not is_stream(outer):
        outer = outer.f_back
    return outer is not None


class Recorder:
    """Notes every function of Mainspring that is entered while it is armed, in any thread."""

    def __init__(self, *, streams_before: int = 0) -> None:
        self._skip = streams_before
        self._armed = streams_before == 0
        self.functions: dict[CodeType, None] = {}
        self.reached = threading.Event()
        self._streams: list[FrameType] = []

    def start(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def arm(self) -> None:
        self.functions.clear()
        self.reached.clear()
        self._armed = True

    def disarm(self) -> None:
        self._armed = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or self.reached.is_set() or not code.co_filename.startswith(SOURCE):
            return
        if is_stream(frame):
            self._on_stream(frame)
        elif self._armed and code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<"):
            self.functions[code] = None

    def _on_stream(self, frame: FrameType) -> None:
        if frame in self._streams or is_inside_stream(frame):
            return  # a generator that goes on, or one model that wraps another
        self._streams.append(frame)
        if self._skip:
            self._skip -= 1
            self._armed = self._skip == 0
        elif self._armed:
            self.reached.set()


def command_line(arguments: list[str], recorder: Recorder) -> None:
    """Run `mainspring ARGUMENTS` in this process."""
    recorder.start()
    from mainspring.edges.cli.main import main  # noqa: PLC0415 - imports count as part of a walk

    sys.argv = ["mainspring", *arguments]
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)


def walk_run() -> Recorder:
    recorder = Recorder()
    command_line(["run", "--model", "scripted:demo", "hi"], recorder)
    return recorder


def walk_bash() -> Recorder:
    recorder = Recorder(streams_before=1)
    Path("script.json").write_text(json.dumps(BASH_SCRIPT), encoding="utf-8")
    arguments = ["run", "--model", "scripted:script.json", "--mode", "bypassPermissions", "go"]
    command_line(arguments, recorder)
    return recorder


class Welcome(io.StringIO):
    """What `serve` prints: its address and its first key."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = threading.Event()

    def write(self, text: str, /) -> int:
        count = super().write(text)
        if len(self.words()) == 2:
            self.is_complete.set()
        return count

    def words(self) -> list[str]:
        return re.findall(r"http://\S+|msk_\S+", self.getvalue())


def walk_post() -> Recorder:
    recorder = Recorder()
    recorder.disarm()
    welcome = Welcome()
    stdout, sys.stdout = sys.stdout, welcome
    client = threading.Thread(target=send_message, args=(welcome, recorder))
    client.start()
    try:
        command_line(["serve", "--port", "0", "--model", "scripted:demo", "--allow-root"], recorder)
    finally:
        sys.stdout = stdout
    client.join(SECONDS)
    return recorder


def send_message(welcome: Welcome, recorder: Recorder) -> None:
    welcome.is_complete.wait(SECONDS)
    url, key = sorted(welcome.words(), key=lambda word: word.startswith("msk_"))
    connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=60)

    def post(path: str, body: object) -> dict[str, Any]:
        headers = {"x-api-key": key, "content-type": "application/json"}
        headers["anthropic-beta"] = "managed-agents-2026-04-01"
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        decoded = json.loads(answer.read())
        if answer.status >= 300:
            raise SystemExit(f"{path}: {decoded}")
        return decoded

    try:
        agent = post("/v1/agents", {"name": "walker", "model": "scripted:demo"})
        environment = post("/v1/environments", {"name": "walks"})
        body = {"agent": agent["id"], "environment_id": environment["id"]}
        session = post("/v1/sessions", body)
        recorder.arm()
        content = [{"type": "text", "text": "hi"}]
        events = {"events": [{"type": "user.message", "content": content}]}
        post(f"/v1/sessions/{session['id']}/events", events)
        recorder.reached.wait(SECONDS)
    finally:
        os.kill(os.getpid(), 15)


def walked(name: str) -> list[str]:
    """One walk in a process and a folder of its own; the functions it entered, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder, "MAINSPRING_ALLOW_ROOT": "1"}
        project = Path(folder, "project")  # an agent has no tools in a home folder
        project.mkdir()
        for walk in ("run", name):
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), "--walk", walk],
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=3 * SECONDS,
            )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return done.stdout.rpartition("WALK\n")[2].splitlines()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--walk"]:
        recorder = {"run": walk_run, "post": walk_post, "bash": walk_bash}[arguments[1]]()
        if not recorder.reached.is_set():
            sys.stderr.write("the model was not asked\n")
            return 1
        names = (
            f"{code.co_filename[len(SOURCE) :]}:{code.co_qualname}" for code in recorder.functions
        )
        sys.stdout.write("WALK\n" + "".join(f"{name}\n" for name in sorted(names)))
        return 0
    started = time.monotonic()
    for name in WALKS:
        functions = walked(name)
        files = {function.partition(":")[0] for function in functions}
        print(f"{name}: {len(functions)} functions in {len(files)} files")
        if "--list" in arguments:
            print("".join(f"  {function}\n" for function in functions), end="")
    print(f"{time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
