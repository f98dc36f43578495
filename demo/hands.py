"""The demo agent's tools: they see one folder and run one command in it, nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from mainspring import Tool, ToolError, tool


def tools_for(workspace: Path) -> list[Tool]:
    def inside(path: str) -> Path:
        found = (workspace / path).resolve()
        if not found.is_relative_to(workspace.resolve()):
            raise ToolError(f"{path} is outside the project")
        return found

    @tool(read_only=True, concurrent=True)
    def list_files() -> str:
        """List the project's files."""
        return "\n".join(sorted(path.name for path in workspace.glob("*.py")))

    @tool(read_only=True, concurrent=True)
    def read_file(path: str) -> str:
        """Read a file of the project."""
        return inside(path).read_text(encoding="utf-8")

    @tool(in_doubt="retry")  # writing the same content twice is writing it once
    def write_file(path: str, content: str) -> str:
        """Replace a file of the project."""
        target = inside(path)
        draft = target.with_name(target.name + ".new")
        draft.write_text(content, encoding="utf-8")
        time.sleep(0.5)  # a slow disk: time enough to be killed in the middle
        draft.replace(target)
        return f"wrote {len(content)} characters to {path}"

    @tool(read_only=True)
    def run_tests() -> str:
        """Run the project's tests."""
        done = subprocess.run(
            [sys.executable, "-B", "check_prices.py"],
            cwd=workspace,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout + done.stderr

    return [list_files, read_file, write_file, run_tests]
