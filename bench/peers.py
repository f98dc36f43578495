"""A turn of ours beside a turn of other frameworks, all against one model server in one run.

`python bench/peers.py [ROUNDS]` makes an environment for each peer under `.bench/`, which takes a
minute the first time, then interleaves them. With `limits` after the rounds, only the limit is
measured: the same turns by hand. The peers are `../shared/research/engines_bench`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from report import Measure, as_table, note

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT.parent / "shared" / "research" / "engines_bench"
PORT = 8901  # as the peers' script has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    environment: str
    durable: bool


ENVIRONMENTS = {
    "raw": ["httpx", "aiohttp", "orjson", "httptools", "uvloop"],
    "pydantic": ["pydantic-ai-slim[openai]", "dbos"],
    "lang": ["langgraph", "langchain-openai", "langgraph-checkpoint-sqlite", "aiosqlite"],
    "oai": ["openai-agents"],
}
LIMITS = (  # the same turns by hand: nothing can be faster that does as much
    Peer(name="raw", environment="raw", durable=False),
    Peer(name="rawlog:full", environment="raw", durable=True),
    Peer(name="rawaio:logfull", environment="raw", durable=True),
)
PEERS = (
    Peer(name="pydantic", environment="pydantic", durable=False),
    Peer(name="pydantic:dbos", environment="pydantic", durable=True),
    Peer(name="langgraph", environment="lang", durable=False),
    Peer(name="langgraph:sqlite", environment="lang", durable=True),
    Peer(name="oai:sqlite", environment="oai", durable=True),
)
OURS = "mainspring"


def python_of(environment: str) -> str:
    place = ROOT / ".bench" / environment
    if not (place / "ready").exists():
        note(f"installing {environment} ...")
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--clear", str(place)], check=True)
        python = str(place / "bin" / "python")
        subprocess.run(
            [*uv, "pip", "install", "-q", "--python", python, *ENVIRONMENTS[environment]],
            check=True,
        )
        (place / "ready").touch()
    return str(place / "bin" / "python")


def figures(command: list[str]) -> dict[str, float]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "BENCH_DIR": str(ROOT / ".bench" / "data")},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-500:]}")
    return json.loads(lines[-1])


FIGURES = {"p50_ms": "lat", "cpu_ms_turn": "lat", "turns_s": "conc"}
"""What a peer's script prints, and in which of its modes."""


def run_all(rounds: int, peers: Sequence[Peer]) -> dict[str, dict[str, float]]:
    """The median of each figure, by name."""
    found: dict[str, dict[str, list[float]]] = {}
    commands = {
        peer.name: [python_of(peer.environment), str(SCRIPTS / "peer.py"), peer.name]
        for peer in peers
    }
    commands[OURS] = [sys.executable, str(ROOT / "bench" / "turns.py")]
    for number in range(rounds):
        for name, command in commands.items():
            note(f"round {number + 1}: {name}")
            modes = {mode: figures([*command, mode]) for mode in ("lat", "conc")}
            for figure, mode in FIGURES.items():
                kept = found.setdefault(name, {}).setdefault(figure, [])
                kept.append(modes[mode][figure])
    return {
        name: {figure: median(values) for figure, values in kept.items()}
        for name, kept in found.items()
    }


def table(found: dict[str, dict[str, float]]) -> list[Measure]:
    return [
        Measure(
            name=f"{name}, p50 of a turn",
            value=figure["p50_ms"],
            unit="ms",
            detail=f"{figure['cpu_ms_turn']:.2f} CPU-ms; {figure['turns_s']:.0f} turns/s at 64",
        )
        for name, figure in found.items()
    ]


def measures(found: dict[str, dict[str, float]]) -> list[Measure]:
    p50 = {name: figure["p50_ms"] for name, figure in found.items()}
    rate = {name: figure["turns_s"] for name, figure in found.items()}
    durable = [peer.name for peer in PEERS if peer.durable]
    fastest = min(durable, key=lambda name: p50[name])
    busiest = max(durable, key=lambda name: rate[name])
    return [
        *table(found),
        Measure(
            name="ours / fastest of all peers",
            value=p50[OURS] / min(p50[peer.name] for peer in PEERS),
            unit="x",
            target="<= 1",
        ),
        Measure(
            name=f"ours / fastest durable peer ({fastest})",
            value=p50[OURS] / p50[fastest],
            unit="x",
            target="<= 0.5",
        ),
        Measure(
            name=f"turns/s at 64, ours / best durable peer ({busiest})",
            value=rate[OURS] / rate[busiest],
            unit="x",
            target=">= 2",
        ),
    ]


def main() -> int:
    if not SCRIPTS.is_dir():
        raise SystemExit(f"the peers' scripts are not there: {SCRIPTS.name}")
    rounds, only_limits = int((sys.argv[1:] or ["3"])[0]), "limits" in sys.argv
    server = subprocess.Popen([python_of("raw"), str(SCRIPTS / "fake_model.py"), str(PORT)])
    try:
        if only_limits:
            found = table(run_all(rounds, LIMITS))
        else:
            found = measures(run_all(rounds, (*LIMITS, *PEERS)))
    finally:
        server.terminate()
        server.wait()
    print(as_table(found))
    return int(any(item.is_met is False for item in found))


if __name__ == "__main__":
    sys.exit(main())
