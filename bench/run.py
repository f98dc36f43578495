"""Run benchmarks: `python bench/run.py [NAME]... [--json]`. All of `BENCHES` by default."""

from __future__ import annotations

import argparse
import os
import sys

import anyio
import append
import dashboard
import deferred_tools
import deltas
import dreams
import early
import evals
import events
import evolve
import follow
import gate
import growth
import mcp_calls
import memory
import monty
import redaction
import session_lists
import skills
import snapshots
import start
import streams
import subagents
import takeover
import tenants
import terminal
import tokens
import turns
import workers
import workflows
from report import Measure, as_json, as_table, note

import providers
import sandbox

BENCHES = {
    "append": append.measure,
    "growth": growth.measure,
    "follow": follow.measure,
    "providers": providers.measure,
    "turns": turns.measure,
    "tokens": tokens.measure,
    "terminal": terminal.measure,
    "deltas": deltas.measure,
    "sandbox": sandbox.measure,
    "dashboard": dashboard.measure,
    "early": early.measure,
    "monty": monty.measure,
    "snapshots": snapshots.measure,
    "workers": workers.measure,
    "takeover": takeover.measure,
    "streams": streams.measure,
    "skills": skills.measure,
    "tools": deferred_tools.measure,
    "memory": memory.measure,
    "dreams": dreams.measure,
    "subagents": subagents.measure,
    "events": events.measure,
    "lists": session_lists.measure,
    "start": start.measure,
    "mcp": mcp_calls.measure,
    "evals": evals.measure,
    "gate": gate.measure,
    "evolve": evolve.measure,
    "workflows": workflows.measure,
    "redaction": redaction.measure,
    "tenants": tenants.measure,
}


async def measured(names: list[str]) -> list[Measure]:
    found: list[Measure] = []
    for name in names:
        note(f"measuring {name} ...")
        found += await BENCHES[name]()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure; every figure is of this one run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    wanted = parser.parse_args()
    if unknown := [name for name in wanted.names if name not in BENCHES]:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(BENCHES)}")
    load = os.getloadavg()[0]
    if load > 1:
        note(f"this machine is busy (load {load:.1f}): take ratios with a grain of salt")
    found = anyio.run(measured, wanted.names or list(BENCHES))
    print(as_json(found) if wanted.json else as_table(found))
    return int(any(item.is_met is False for item in found))


if __name__ == "__main__":
    sys.exit(main())
