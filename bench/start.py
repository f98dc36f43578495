"""What `mainspring run` costs until its first request is at the model: processor time of the
command, without what runs in a sandbox, with warm bytecode; beside the imports that it cannot do
without.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Measure, median

ROUNDS = 9
_SANDBOX = ("bwrap", "keeper")
_TICK = os.sysconf("SC_CLK_TCK")


async def measure() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        command, imports = _rounds(Path(folder))
    return [
        Measure(
            name="start of `mainspring run` to its first request, CPU",
            value=median(command),
            unit="s",
            target="<= 0.5",
            detail=f"{min(command):.2f} to {max(command):.2f} s in {ROUNDS} rounds",
        ),
        Measure(name="import aiohttp, msgspec, CPU", value=median(imports), unit="s"),
    ]


def _rounds(folder: Path) -> tuple[list[float], list[float]]:
    command: list[float] = []
    imports: list[float] = []
    environ = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "HOME": str(folder),
    }
    for _ in range(ROUNDS + 1):
        command.append(_first_request(folder, environ))
        imports.append(_imports(environ))
    return command[1:], imports[1:]  # the first has written the bytecode


def _imports(environ: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", "import time, aiohttp, msgspec; print(time.process_time())"],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _first_request(folder: Path, environ: dict[str, str]) -> float:
    """The processor time that the command has used when its first request arrives."""
    place = tempfile.mkdtemp(dir=folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        with subprocess.Popen(
            [sys.executable, "-m", "mainspring", "run", "--model", "vllm:fake-0", "hi"],
            cwd=place,
            env={**environ, "VLLM_BASE_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            server.settimeout(60)
            try:
                client, _ = server.accept()
                with client:
                    client.settimeout(60)
                    client.recv(1)
                    return _cpu_seconds(process.pid)
            finally:
                process.kill()


def _cpu_seconds(pid: int) -> float:
    """Of a process and of all below it, the sandbox and what runs in it excepted."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    spent = sum(int(field) for field in fields[11:15]) / _TICK
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    for child in below:
        line = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
        if not any(word in line for word in _SANDBOX):
            spent += _cpu_seconds(int(child))
    return spent
