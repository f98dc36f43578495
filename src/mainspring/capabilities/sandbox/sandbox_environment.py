"""The `sandbox` part of settings files: backend, limits, network, secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from mainspring.capabilities.sandbox.backend import SandboxLimits
from mainspring.capabilities.sandbox.backend_selection import BackendName

MAX_PROGRAM_SECONDS = 1800  # half an hour; longer work belongs to a service
_PATH = "/usr/local/bin:/usr/bin:/bin"
PackageSetName: TypeAlias = Literal["documents"]
PACKAGE_SETS: dict[PackageSetName, tuple[str, ...]] = {
    "documents": (
        *("reportlab", "python-docx", "python-pptx", "openpyxl", "pandas", "matplotlib"),
        *("pillow", "pypdf", "pdfplumber", "seaborn", "scipy", "scikit-learn"),
    ),
}


class _Limits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    cpu_seconds: int = SandboxLimits().cpu_seconds
    memory_bytes: int = SandboxLimits().memory_bytes
    processes: int = SandboxLimits().processes
    file_bytes: int = SandboxLimits().file_bytes
    open_files: int = SandboxLimits().open_files
    disk_bytes: int = SandboxLimits().disk_bytes
    tmp_bytes: int = SandboxLimits().tmp_bytes
    output_bytes: int = SandboxLimits().output_bytes


class EnvironmentPackages(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Packages of a registry, with or without a version, that are installed for programs."""

    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    use: tuple[PackageSetName, ...] = ()
    """Predefined sets of packages."""

    @property
    def python(self) -> tuple[str, ...]:
        ready = (package for name in self.use for package in PACKAGE_SETS[name])
        return tuple(dict.fromkeys((*ready, *self.pip)))


class SandboxEnvironment(Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown keys belong to other programs and are ignored."""

    backend: BackendName | None = None
    """Use only this backend; by default, the first that works."""
    disabled_backends: tuple[BackendName, ...] = ()
    allow_degraded: bool = False
    image: str | None = None
    """For the backend `docker`."""
    networking: dict[str, object] = field(default_factory=dict[str, object])
    """In the format of the Managed Agents API: `{"type": "limited", "allowed_hosts": [...]}`."""
    read_only: tuple[str, ...] = ()
    """Folders outside the workspace that programs may read: toolchains."""
    limits: _Limits = _Limits()
    secrets: tuple[str, ...] | None = None
    """Names of secrets in the vault that programs may use; by default, all that have hosts."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Variables for programs, in addition to `env` of the settings files."""
    packages: EnvironmentPackages = EnvironmentPackages()
    program_seconds: Annotated[int, Meta(ge=1, le=MAX_PROGRAM_SECONDS)] = 600
    """The longest time limit that a call of `bash` can ask for."""

    @property
    def has_packages(self) -> bool:
        return self.packages != EnvironmentPackages()

    @property
    def isolation(self) -> SandboxEnvironment:
        """How programs are isolated and limited, without anything that they may reach."""
        return SandboxEnvironment(
            backend=self.backend,
            disabled_backends=self.disabled_backends,
            allow_degraded=self.allow_degraded,
            image=self.image,
            limits=self.limits,
        )

    def with_additions(
        self, packages: Mapping[str, Sequence[str]], folder: str
    ) -> SandboxEnvironment:
        """The environment with more packages, by manager, and a folder that programs may read."""
        additions = {
            manager: tuple(
                dict.fromkeys((*packages.get(manager, ()), *getattr(self.packages, manager)))
            )
            for manager in ("pip", "npm", "apt")
        }
        return replace(
            self,
            packages=replace(self.packages, **additions),
            read_only=(*self.read_only, folder),
        )

    def with_programs(self, folder: str | Path) -> SandboxEnvironment:
        """The environment with a folder at the start of `PATH`."""
        path = f"{folder}:{self.variables.get('PATH', _PATH)}"
        return replace(self, variables={**self.variables, "PATH": path})

    @property
    def sandbox_limits(self) -> SandboxLimits:
        limits = {name: getattr(self.limits, name) for name in self.limits.__struct_fields__}
        # a program that may run longer may also compute longer, unless the settings say otherwise
        if self.limits.cpu_seconds == SandboxLimits().cpu_seconds:
            limits["cpu_seconds"] = max(self.limits.cpu_seconds, self.program_seconds)
        return SandboxLimits(**limits)
