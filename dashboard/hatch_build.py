"""Builds the dashboard into a wheel of a checkout that has no finished one, if there is a Node on
PATH. It needs no package and never fails: without it, the API works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_SECONDS = 600  # a slow network; installing must not wait for ever


class DashboardHook(BuildHookInterface[Any]):  # Any: the hook has no settings
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del build_data
        root = Path(self.root)
        static = root / "src/mainspring/edges/dashboard/static/index.html"
        tool = root / "tools/dashboard.py"
        if version == "editable" or static.is_file() or not tool.is_file():
            return
        if shutil.which("node") is None or shutil.which("npm") is None:
            return
        command = [sys.executable, str(tool), "--optional"]
        try:
            subprocess.run(command, cwd=root, check=False, timeout=BUILD_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"the dashboard was not built: {error}", file=sys.stderr)  # noqa: T201 (a build prints)
