"""Count what Mainspring does before the model is asked, in three walks: the distinct functions that
run, SQL statements, folds of a whole log and reads of the settings files.

`python tools/walk.py` prints one line for each walk; `--list` also prints the functions and the
statements.
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
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from inspect import CO_OPTIMIZED, currentframe
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
MANY = 2
"""More event types, or events, than who looks for something in particular reads."""


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
        self.statements: list[str] = []
        """SQL with its values, and the function that ran it."""
        self.folds = 0
        """How often the log of a session was read from its start, with events of all types or of
        the many that a fold needs."""
        self.settings = 0
        """How often the settings files of a folder were read."""
        self.reached = threading.Event()
        self._streams: list[FrameType] = []
        self._entered: set[FrameType] = set()

    def start(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        connect = sqlite3.connect

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:  # noqa: ANN401 (passed on)
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(self._on_statement)
            return connection

        sqlite3.connect = traced

    def arm(self) -> None:
        self.functions.clear()
        self.statements.clear()
        self.folds = self.settings = 0
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
            if frame not in self._entered:  # a coroutine is entered whenever it goes on
                self._entered.add(frame)
                self._count(frame)

    def _count(self, frame: FrameType) -> None:
        code, values = frame.f_code, frame.f_locals
        if code.co_qualname == "SessionLog.read":
            types, is_long = values["types"], (values["limit"] or MANY) >= MANY
            self.folds += values["after"] == 0 and (types is None or len(types) > MANY) and is_long
        self.settings += code.co_qualname == "load_policy"

    def _on_statement(self, sql: str) -> None:
        if not self._armed or self.reached.is_set() or sql.startswith("--"):
            return
        frame = currentframe()
        assert frame is not None
        while frame.f_back is not None and not frame.f_code.co_filename.startswith(SOURCE):
            frame = frame.f_back
        statement = f"{frame.f_code.co_qualname}: {' '.join(sql.split())[:200]}"
        if self.statements[-1:] != [statement]:  # SQLite reports it again for each of its triggers
            self.statements.append(statement)

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


def walked(name: str) -> dict[str, Any]:
    """One walk in a process and a folder of its own: what the recorder has counted."""
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
    return json.loads(done.stdout.rpartition("WALK\n")[2])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--walk"]:
        recorder = {"run": walk_run, "post": walk_post, "bash": walk_bash}[arguments[1]]()
        if not recorder.reached.is_set():
            sys.stderr.write("the model was not asked\n")
            return 1
        counts = {
            "functions": sorted(
                f"{code.co_filename[len(SOURCE) :]}:{code.co_qualname}"
                for code in recorder.functions
            ),
            "statements": recorder.statements,
            "folds": recorder.folds,
            "settings": recorder.settings,
        }
        sys.stdout.write("WALK\n" + json.dumps(counts))
        return 0
    started = time.monotonic()
    for name in WALKS:
        counts = walked(name)
        functions, statements = counts["functions"], counts["statements"]
        files = {function.partition(":")[0] for function in functions}
        print(
            f"{name}: {len(functions)} functions in {len(files)} files,"
            f" {len(statements)} SQL statements, {counts['folds']} folds,"
            f" settings read {counts['settings']} times"
        )
        if "--list" in arguments:
            print("".join(f"  {line}\n" for line in (*functions, *statements)), end="")
    print(f"{time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
