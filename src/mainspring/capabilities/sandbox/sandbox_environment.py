"""The `sandbox` part of settings files: backend, limits, network, secrets."""

from __future__ import annotations

from msgspec import Struct, field

from mainspring.capabilities.sandbox.backend import SandboxLimits
from mainspring.capabilities.sandbox.backend_selection import BackendName


class _Limits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    cpu_seconds: int = SandboxLimits().cpu_seconds
    memory_bytes: int = SandboxLimits().memory_bytes
    processes: int = SandboxLimits().processes
    file_bytes: int = SandboxLimits().file_bytes
    open_files: int = SandboxLimits().open_files
    disk_bytes: int = SandboxLimits().disk_bytes
    tmp_bytes: int = SandboxLimits().tmp_bytes
    output_bytes: int = SandboxLimits().output_bytes


class SandboxEnvironment(Struct, frozen=True, kw_only=True, rename="camel"):
    """Other keys, of other programs, are ignored."""

    backend: BackendName | None = None
    """Only this one; by default, the first that works."""
    disabled_backends: tuple[BackendName, ...] = ()
    allow_degraded: bool = False
    image: str | None = None
    """For the backend `docker`."""
    networking: dict[str, object] = field(default_factory=dict[str, object])
    """As the Managed Agents API has it: `{"type": "limited", "allowed_hosts": [...]}`."""
    read_only: tuple[str, ...] = ()
    """Folders outside the workspace that programs may read: toolchains."""
    limits: _Limits = _Limits()
    secrets: tuple[str, ...] | None = None
    """Names of secrets in the vault that programs may use; by default, all that have hosts."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """For programs, in addition to `env` of the settings files."""

    @property
    def sandbox_limits(self) -> SandboxLimits:
        names = self.limits.__struct_fields__
        return SandboxLimits(**{name: getattr(self.limits, name) for name in names})
