"""Where a scene is played: a project, a home and a store in a state that each command starts from
again, a model server, and all that a command leaves behind."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

from msgspec import Struct
from tests import fork_server
from tests.cli.upstream import Part, Upstream
from tests.environ import clean_environ
from tests.keys import install
from tests.written_files import write_file

_ROWS = {
    "event": "type || ' ' || body",
    "inbox": "type || ' ' || body",
    "record": "kind || ' ' || id || ' ' || label || ' ' || is_archived || ' ' || body",
    "tally": "name || ' ' || amount",
}
_MAX_FILE_BYTES = 200_000
_MEETING_SECONDS = 4.0
"""How long a request waits for another one: far longer than two need to start."""
_PRICES = """
[models."ollama:test"]
window = 100_000
max_output = 8_000
price = { input = "2", output = "9", cache_read = "1", cache_write = "3" }
price_date = "2026-11-01"
"""


Answer: TypeAlias = Callable[[dict[str, Any]], tuple[Part, ...]]


def _say(_request: dict[str, Any]) -> tuple[Part, ...]:
    return ("That is all I know.",)


class Outcome(Struct, frozen=True, kw_only=True):
    """What a command did."""

    status: int
    stdout: str
    stderr: str
    requests: str
    """To the model."""
    files: str
    rows: str
    """Of the store."""

    @property
    def parts(self) -> tuple[str, ...]:
        output = f"{self.stdout}\n{self.stderr}\nexit {self.status}\n"
        return output, self.requests, self.files, self.rows


class Place:
    def __init__(self, root: Path, upstream: Upstream) -> None:
        self.root = root
        self.project = root / "project"
        self.home = root / "home"
        self.facts: dict[str, str] = {}
        """Ids and other values that arguments name as `$NAME`."""
        self.upstream = upstream
        self.otherwise: Answer = _say
        """What the model answers when nothing else was planned."""
        self._saved = root.with_name(f"{root.name}.saved")
        self.project.mkdir(parents=True)
        self.home.mkdir()
        install(self.home)

    def write(self, name: str, text: str) -> Path:
        file = self.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *arguments: str, stdin: str = "", cwd: str = ".") -> Outcome:
        self.upstream.requests.clear()
        self.upstream.otherwise = self.otherwise
        env = {
            **clean_environ("NO_COLOR", "FORCE_COLOR", "COLUMNS"),
            **self.upstream.variables,
            "HOME": str(self.home),
            "TZ": "UTC",
            "TERM": "dumb",
            "USER": "tester",
        }
        filled = [Template(word).safe_substitute(self.facts) for word in arguments]
        result = fork_server.run(*filled, cwd=self.project / cwd, env=env, stdin=stdin)
        return Outcome(
            status=result.returncode,
            stdout=result.stdout,
            stderr=result.stderr,
            requests=json.dumps(self.upstream.requests),
            files="\n".join(self._files()),
            rows="\n".join(self._rows()),
        )

    def must(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that has to succeed; returns its standard output."""
        outcome = self.run(*arguments, stdin=stdin)
        assert outcome.status == 0, (arguments, outcome.stdout, outcome.stderr)
        return outcome.stdout

    def lines(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.must(*arguments, "--json").splitlines()]

    def save(self) -> None:
        """Every scene begins with the present state."""
        shutil.copytree(self.root, self._saved, symlinks=True, ignore=_sockets)

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._saved, self.root, symlinks=True)

    def _files(self) -> list[str]:
        texts: list[str] = []
        for file in sorted(self.root.rglob("*")):
            if ".git" in file.parts or ".db" in file.suffixes or not file.is_file():
                continue
            name = file.relative_to(self.root).as_posix()
            content = file.read_bytes()[:_MAX_FILE_BYTES].decode(errors="replace")
            texts.append(f"file {name} {file.stat().st_mode:o}\n{content}")
        return texts

    def _rows(self) -> list[str]:
        rows: list[str] = []
        for store in sorted(self.root.rglob("mainspring.db")):
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
                for table, columns in _ROWS.items():
                    rows += [str(text) for (text,) in db.execute(f"select {columns} from {table}")]
        return rows


def add_prices(place: Place) -> None:
    """The model of the place has a price, so that limits of cost have an effect."""
    write_file(place.home / ".mainspring/models.toml", _PRICES)


def without_sandbox(place: Place) -> None:
    """No sandbox works for the user of this place."""
    disabled = {"disabledBackends": ["bubblewrap", "landlock", "seatbelt", "docker"]}
    settings = json.dumps({"sandbox": disabled})
    write_file(place.home / ".mainspring/settings.json", settings)


def meeting() -> Answer:
    """Each answer says whether another one was asked for at the same time."""
    both = threading.Barrier(2, timeout=_MEETING_SECONDS)

    def answer(_request: dict[str, Any]) -> tuple[Part, ...]:
        try:
            both.wait()
        except threading.BrokenBarrierError:
            both.reset()
            return ("I was alone.",)
        return ("We were two.",)

    return answer


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]
