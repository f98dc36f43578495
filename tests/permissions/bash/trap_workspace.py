"""A workspace of traps: files that rules deny, and files that run when a program trusts them."""

import bz2
import gzip
import lzma
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

CANARY = "c4n4ry"
"""In every file that a rule denies, and nowhere else."""
DENIED = ("secrets/key", "secrets/db.json", ".env", "id_rsa", "creds.json")
DENY_RULES = (
    "Bash(rm:*)",
    "Bash(git push:*)",
    "Read(./secrets/**)",
    "Read(.env)",
    "Read(id_rsa)",
    "Read(creds.json)",
    "WebFetch(domain:evil.com)",
)
READ_ONLY_RULES = (
    "Bash(ls:*)",
    "Bash(git log:*)",
    "Bash(find:*)",
    "Bash(rg:*)",
    "Bash(sed:*)",
    "Bash(awk:*)",
    "Bash(sort:*)",
    "Bash(echo:*)",
    "Bash(cat:*)",
)
_EVIL = '#!/bin/sh\ntouch "$TMPDIR/evil"\n'
_SECRET = f"TOKEN={CANARY}\n"
_FILES = {
    ".env": _SECRET,
    "id_rsa": f"-----BEGIN KEY-----\n{CANARY}\n-----END KEY-----\n",
    "creds.json": f'{{"token": "{CANARY}"}}\n',
    "secrets/key": _SECRET,
    "secrets/db.json": f'{{"password": "{CANARY}"}}\n',
    "README.md": "# Project\n\nfoo bar\nx 1\ny 2\n",
    "src/a.py": "import os\n\nfoo = 1  # TODO\n",
    "x": ".env\nid_rsa\nsecrets/key\n",
    "y": "b 2\na 1\n",
    "a.txt": "a\nb\nc\n",
    "b.txt": "a\nc\nd\n",
    "n.txt": "1\n2\n3\n",
    "data.csv": "a,1\nb,2\n",
    "package.json": '{"name": "x", "version": "1.0.0"}\n',
    "names0": ".env\0id_rsa\0",
    "sums": "0" * 64 + "  .env\n" + "0" * 32 + "  id_rsa\n",
    "link.txt": "plain\n",
    "x_dir/inner.txt": "inner\n",
    # Names that turn into options where a glob begins with `*`.
    "-oout.txt": "a\n",
    "-f.env": "a\n",
    "-delete": "a\n",
    # What a program runs or reads because it finds it.
    "evil.sh": _EVIL,
    "Makefile": "X := $(shell ./evil.sh)\nall:\n\techo hello\n",
    "json/__init__.py": "",
    "json/tool.py": "import subprocess; subprocess.run(['./evil.sh'])\n",
    "conftest.py": "import subprocess; subprocess.run(['./evil.sh'])\n",
    ".jq": "def evil: input_filename;\n",
    "script.sed": "w out\n1e ./evil.sh\n",
    "script.awk": 'BEGIN { system("./evil.sh") }\n',
    "script.jq": "input\n",
    "build": "built\n",
    "x.c": "int main(void) { return 0; }\n",
    "x.xml": "<a><b/></a>\n",
    "x.yaml": "a: 1\n",
    "x.js": 'require("fs").writeFileSync("out", "")\n',
    "x.sh": "touch out\n",
    # Inputs that name what else is to be read.
    "evil.xml": '<!DOCTYPE a SYSTEM "id_rsa" [<!ENTITY e SYSTEM "secrets/key">]><a>&e;</a>\n',
    "evil.1": ".so .env\n.so secrets/key\n",
    "evil_source.sh": "# shellcheck source=.env\n. ./y\n. ./.env\n",
    ".shellcheckrc": "external-sources=true\n",
}
_LINKS = {
    "pub": ".env",
    "pub_dir": "secrets",
    "out_dir": "../outside",
    "src/deep": "../x_dir",  # so `src/deep/..` is not `src`
}
_CONFIG = """
[core]
    fsmonitor = {evil}
    pager = {evil}
    editor = {evil}
    sshCommand = {evil}
    hooksPath = {folder}
[diff]
    external = {evil}
[diff "evil"]
    textconv = {evil}
    command = {evil}
[alias]
    look = !{evil}
[pager]
    log = {evil}
"""


class TrapWorkspace:
    """`root/work` is the workspace; `root/outside` and `root/home` are not in it."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root = root / "work"
        self.outside = root / "outside"
        self.home = root / "home"
        for folder in (self.root, self.outside, self.home):
            folder.mkdir()
        (self.outside / "private.txt").write_text("private\n")
        (self.home / "private.txt").write_text("private\n")
        (self.home / ".gitconfig").write_text("[safe]\n    directory = *\n")
        for name, text in _FILES.items():
            self._write(self.root / name, text)
        for name, target in _LINKS.items():
            (self.root / name).symlink_to(target)
        (self.root / "evil.sh").chmod(0o755)
        self._make_archives()
        self._make_repository()
        self._make_nested("nest", bare=False)
        self._make_nested("bare", bare=True)
        self.denied = frozenset(str(self.root / name) for name in DENIED)
        self._lock(root)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    def _make_archives(self) -> None:
        text = _FILES["README.md"].encode()
        packed = (
            ("gz", gzip.compress(text)),
            ("bz2", bz2.compress(text)),
            ("xz", lzma.compress(text)),
        )
        for ending, content in packed:
            (self.root / f"a.{ending}").write_bytes(content)
        with zipfile.ZipFile(self.root / "a.zip", "w") as archive:
            archive.writestr("README.md", text)
        with tarfile.open(self.root / "a.tar", "w") as archive:
            archive.add(self.root / "README.md", "README.md")

    def _make_repository(self) -> None:
        self._git("init", "-q", "-b", "main")
        for key, value in (
            ("user.name", "me"),
            ("user.email", "me@example.com"),
            # The copy is as it was added: nothing is read again to find that out.
            ("core.checkStat", "minimal"),
            ("core.trustctime", "false"),
            ("gc.auto", "0"),
        ):
            self._git("config", key, value)
        self._git("add", "-A")
        self._git("commit", "-qm", "first")
        self._git("tag", "v1")
        self._git("branch", "other")
        self._write(self.root / ".env", _SECRET + "MORE=" + CANARY + "\n")
        self._write(self.root / "README.md", _FILES["README.md"] + "more\n")
        self._git("commit", "-qam", "second")
        self._write(self.root / "id_rsa", _FILES["id_rsa"] * 2)
        self._write(self.root / "y", "b 2\na 1\nc 3\n")
        self._git("stash", "-q")
        self._settle()
        self._write(self.root / "creds.json", _FILES["creds.json"] * 2)
        self._write(self.root / "a.txt", "a\nb\nc\nd\n")
        self._git("remote", "add", "origin", str(self.outside))

    def _settle(self) -> None:
        """Make git sure of what is unchanged, so that it need not open it to find out."""
        for name in _FILES:
            os.utime(self.root / name, (1_700_000_000, 1_700_000_000))
        self._git("update-index", "-q", "--refresh")

    def _make_nested(self, name: str, *, bare: bool) -> None:
        folder = self.root / name
        folder.mkdir()
        self._git("init", "-q", *(["--bare"] if bare else []), cwd=folder)
        config = folder / ("config" if bare else ".git/config")
        evil = self.root / "evil.sh"
        with config.open("a") as lines:
            lines.write(_CONFIG.format(evil=evil, folder=self.root))
        (folder / "inner.txt").write_text("inner\n")
        (folder / ".gitattributes").write_text("* diff=evil\n")

    def _git(self, *words: str, cwd: Path | None = None) -> str:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
            "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
        }
        made = subprocess.run(
            ["git", *words],
            cwd=cwd or self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return made.stdout

    def _lock(self, root: Path) -> None:
        """Nothing can be changed: what is tried is seen, and the next text finds all as it was."""
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
                path.chmod(path.stat().st_mode & ~0o222)
        root.chmod(0o755)
