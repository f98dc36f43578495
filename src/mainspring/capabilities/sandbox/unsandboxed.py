"""No sandbox at all: what an operator may ask for, for a while. Programs are still counted, limited
and swept up after."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mainspring.capabilities.sandbox.backend import Launch, SandboxSpec, rlimits_of
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel

_ROOT = Path(__file__).parents[2]
_BEGIN = (
    "import sys; package = type(sys)('mainspring'); package.__path__ = [sys.argv[1]];"
    " sys.modules['mainspring'] = package;"
    " from mainspring.capabilities.sandbox.bare_inside import main; main(sys.argv[2])"
)


@dataclass(frozen=True, slots=True)
class Unsandboxed:
    @property
    def name(self) -> str:
        return "none"

    @property
    def level(self) -> IsolationLevel:
        return "none"

    def launch(self, spec: SandboxSpec) -> Launch:
        if spec.network:
            raise SandboxFailed(
                "an allow-list of hosts cannot be enforced without a sandbox: turn it off"
            )
        rlimits = rlimits_of(spec.sandbox_limits)
        del rlimits["NPROC"]  # would count everything that this user runs
        return Launch(
            argv=bare_agent("family"),
            variables={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
                "HOME": str(spec.workspace),
                "LANG": "C.UTF-8",
            },
            rlimits=rlimits,
            has_own_pids=False,
            fingerprint=f"none\n{spec.sandbox_limits!r}",
        )


def bare_agent(sweeps: str) -> tuple[str, ...]:
    """The agent where there is no PID namespace: `reachable` kills all that it can reach, `family`
    all that descends from it."""
    return (sys.executable, "-I", "-S", "-c", _BEGIN, str(_ROOT), sweeps)
