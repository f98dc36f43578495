"""Programs that go on in the background, each in a sandbox of its own with limits of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mainspring.capabilities.sandbox.cage import Backend, Limits, Site
from mainspring.capabilities.sandbox.client import KeptSandbox, Progress
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Exec, Ran

_MOST = 4


@dataclass(frozen=True, slots=True)
class _Service:
    key: str
    sandbox: KeptSandbox


class Services:
    """Of one session. A name is free again when its service has been stopped."""

    def __init__(self, site: Site, backend: Backend, *, limits: Limits | None = None) -> None:
        self._site = replace(site, limits=limits or site.limits, network=False)
        self._backend = backend
        self._running: dict[str, _Service] = {}

    async def start(self, name: str, wanted: Exec) -> None:
        """
        Raises:
            SandboxFailed: it was not started.
        """
        if name in self._running:
            raise SandboxFailed(f"a service {name!r} is there already: stop it first")
        if len(self._running) >= _MOST:
            raise SandboxFailed(f"no more than {_MOST} services at a time: stop one first")
        sandbox = self._sandbox(name)
        await sandbox.begin(wanted)
        self._running[name] = _Service(wanted.key, sandbox)

    async def output(self, name: str) -> Progress | None:
        """What it has said so far; `None` if there is no such service."""
        service = self._running.get(name)
        return await service.sandbox.progress(service.key) if service else None

    async def stop(self, name: str) -> Ran | None:
        """Kill it; what it has said in all."""
        service = self._running.pop(name, None)
        if service is None:
            return None
        ran = await service.sandbox.cancel(service.key)
        await service.sandbox.close()
        return ran

    async def close(self) -> None:
        for name in list(self._running):
            await self.stop(name)

    def _sandbox(self, name: str) -> KeptSandbox:
        folder = self._site.state / "services" / name.encode().hex()
        return KeptSandbox(replace(self._site, state=folder), self._backend)
