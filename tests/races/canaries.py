"""What is outside of every workspace: nobody is to read it, nobody is to change it."""

import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import TypeAlias

from tests.races.hostile import MARK
from tests.repositories import git, repository

State: TypeAlias = dict[str, tuple[object, ...]]

_FILES = (
    *("server.db", "prompt.txt", "notes.txt", "settings.json", "config", "SKILL.md", "plan.txt"),
    *("hooks/pre-commit", "info/exclude", "deep/prompt.txt", "more/prompt.txt", "skills/SKILL.md"),
    *("deep/deep.txt", "main.py", "hooks/prompt.txt", "one/SKILL.md"),
)
_MODES = (0o600, 0o644, 0o640, 0o666)


class Canaries:
    """Folders that links lead to: another tenant's files, the server's store, a repository."""

    def __init__(self, root: Path) -> None:
        self.token = MARK.decode() + secrets.token_hex(12)
        self._root = root
        tenant, server = root / "another-tenant", root / "server"
        for at, place in enumerate((tenant, server)):
            self._fill(place, at)
        repository(root / "repository")
        (root / "repository/prompt.txt").write_text(self.token)
        git(root / "repository", "add", ".")
        git(root / "repository", "commit", "--quiet", "--message", self.token)
        self.folders = [str(item) for item in (tenant, server, root / "repository/.git")]
        self.before = self.now()

    def _fill(self, place: Path, at: int) -> None:
        for number, name in enumerate(_FILES):
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            told = {"name": name, "description": self.token}
            file.write_text(f"{json.dumps(told)}\n")
            file.chmod(_MODES[(number + at) % len(_MODES)])
        (place / "loose").mkdir(mode=0o777)

    def now(self) -> State:
        """Content, owner, mode, times and names of all; when it was read does not count."""
        found: State = {}
        for folder, folders, files in os.walk(self._root):
            for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
                found[path] = _state(path)
        return found

    def changes(self) -> list[str]:
        """What is not as it was, each told once."""
        before, now = self.before, self.now()
        self.before = now
        return [
            f"{path}: {before.get(path)} has become {now.get(path)}"
            for path in sorted(before.keys() | now.keys())
            if before.get(path) != now.get(path)
        ]

    def is_in(self, text: str | bytes) -> bool:
        return self.token in (text if isinstance(text, str) else text.decode("latin-1"))


def _state(path: str) -> tuple[object, ...]:
    known = os.lstat(path)
    content = b""
    if stat.S_ISREG(known.st_mode):
        content = Path(path).read_bytes()
    return (
        oct(known.st_mode),
        known.st_uid,
        known.st_gid,
        known.st_nlink,
        known.st_mtime_ns,
        known.st_ctime_ns,
        hashlib.sha256(content).hexdigest()[:12],
    )
