"""Programs that go on in the background, each in a sandbox of its own with limits of its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox.backend import Backend, SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.sandbox_client import ExecutionProgress, KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest, ExecResult

_MOST = 4


class SandboxServices:
    """Of one session. All there is to know of them is on disk, so that a harness that comes back
    finds them; one that does not leaves them to their time limits."""

    def __init__(
        self, spec: SandboxSpec, backend: Backend, *, sandbox_limits: SandboxLimits | None = None
    ) -> None:
        self._site = replace(
            spec, sandbox_limits=sandbox_limits or spec.sandbox_limits, network=False
        )
        self._backend = backend
        self._folder = spec.state / "services"

    async def start(self, name: str, wanted: ExecRequest) -> None:
        """Starting it again under the same key changes nothing.

        Raises:
            SandboxFailed: it was not started.
        """
        await to_thread.run_sync(self._take_name, name, wanted.key)
        sandbox = self._sandbox(name)
        await sandbox.begin(wanted)
        await sandbox.leave()

    async def output(self, name: str) -> ExecutionProgress | None:
        """What it has said so far; `None` if there is no such service."""
        key = self._key_of(name)
        return await self._sandbox(name).progress(key) if key is not None else None

    async def stop(self, name: str) -> ExecResult | None:
        """Kill it; what it has said in all. Its name is free again."""
        key = self._key_of(name)
        if key is None:
            return None
        sandbox = self._sandbox(name)
        ran = await sandbox.cancel(key)
        await sandbox.close()
        await to_thread.run_sync(shutil.rmtree, self._place(name))
        return ran

    async def close(self) -> None:
        for place in sorted(self._folder.glob("*/key")):
            await self.stop(bytes.fromhex(place.parent.name).decode())

    def _take_name(self, name: str, key: str) -> None:
        known = self._key_of(name)
        if known == key:
            return
        if known is not None:
            raise SandboxFailed(f"a service named {name!r} already exists: stop it first")
        if len(list(self._folder.glob("*/key"))) >= _MOST:
            raise SandboxFailed(f"no more than {_MOST} services at a time: stop one first")
        place = self._place(name)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / "key.new").write_text(key, encoding="utf-8")
        (place / "key.new").replace(place / "key")  # there as a whole, or not at all

    def _key_of(self, name: str) -> str | None:
        try:
            return (self._place(name) / "key").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _place(self, name: str) -> Path:
        return self._folder / name.encode().hex()

    def _sandbox(self, name: str) -> KeeperSandbox:
        return KeeperSandbox(replace(self._site, state=self._place(name)), self._backend)
