"""The environment of a `mainspring` process under test: nothing of this machine's own set-up."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from mainspring.config import CONTAINER_IS_BOUNDARY

UID = 1500
"""A user like any other; it needs no entry in /etc/passwd."""
_IMPORTS = [str(Path(__file__).parents[1] / "src"), sysconfig.get_path("purelib")]
_BEGIN = (
    f"import sys; sys.path[:0] = {_IMPORTS!r}; from mainspring.edges.cli.main import main; main()"
)
AS_ROOT = {"MAINSPRING_ALLOW_ROOT": "1"}
"""Tests may run as root, and `serve` and `worker` with them. What they say without this is tested
in tests/cli/test_process_user.py."""
NO_LOCAL_MODELS = {
    f"{name}_BASE_URL": "http://127.0.0.1:9/v1"
    for name in ("OLLAMA", "VLLM", "LMSTUDIO", "LLAMACPP")
}
"""No local server, whatever runs on this machine."""

FAILS_AT_ONCE = {"MAINSPRING_MODEL_RETRY_SECONDS": "0"}
"""A model that does not answer is not waited for; tests of outages change this."""


def clean_environ(*without: str) -> dict[str, str]:
    """Ours, without settings of Mainspring, keys of models, and what begins with one of these."""
    unwanted = ("MAINSPRING_", *without)
    kept = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 (handed to the process under test)
        if not name.startswith(unwanted) and not name.endswith("_API_KEY")
    }
    return {**kept, **AS_ROOT, **NO_LOCAL_MODELS, **FAILS_AT_ONCE, **boundary()}


def boundary() -> dict[str, str]:
    """The container, where no sandbox holds: see `tests/abilities.py`."""
    declared = os.environ.get(CONTAINER_IS_BOUNDARY)  # noqa: TID251 (handed to the process under test)
    return {} if declared is None else {CONTAINER_IS_BOUNDARY: declared}


def python_of_all() -> list[str] | None:
    """A Python that runs Mainspring for any user: ours may live in a folder closed to others."""
    for interpreter in (sys.executable, "/usr/bin/python3"):
        ours = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        try:
            tried = subprocess.run([interpreter, "-c", ours], user=UID, group=UID, cwd="/")
        except (FileNotFoundError, PermissionError):
            continue
        if tried.returncode == 0:
            return [interpreter, "-c", _BEGIN]
    return None
