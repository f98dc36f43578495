"""Packages of an environment: real installers, a registry on loopback, layers that are cached."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.mcp.apt_mirror import publish, running_mirror
from tests.mcp.package_registry import npm_archive, running_registry, wheel
from tests.row_checks import for_each
from tests.session_e2e.session_setup import Scene, read_results

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.capabilities.sandbox.sandbox_environment import PACKAGE_SETS
from mainspring.core.errors import InvalidInput
from mainspring.wiring.sandbox_settings import read_environment

PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
PYTHON = "python -c 'import acme_notes as a; print(a.VERSION, a.change())'"
NODE = "node -p 'require(\"@acme/notes/package.json\").version'"


async def use(scene: Scene, registries: Mapping[str, str], *commands: str) -> list[str]:
    """What commands print in a new session."""
    scene.warnings.clear()
    environ = {"HOME": str(scene.home), "PATH": PATH, **registries}
    steps = [calls("bash", command=command) for command in commands]
    async with scene.play(*steps, says("ok"), mode="bypassPermissions", environ=environ) as play:
        assert (await play.run()).ok
        return [read_results(request)[-1] for request in play.model.requests[1:]]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
async def test_packages_are_installed_once_and_available_to_programs(scene: Scene) -> None:
    npm = shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin")
    wanted = {"pip": ["acme-notes==1.0.0"], **({"npm": ["@acme/notes"]} if npm else {})}
    scene.user(sandbox={"packages": wanted, "autoAllowBashIfSandboxed": True})
    async with running_registry() as registry:
        registry.python["1.0.0"] = wheel("acme-notes", "1.0.0")
        registry.npm["1.0.0"] = npm_archive("@acme/notes", "1.0.0")
        commands = (PYTHON, *([NODE] if npm else []))
        first = await use(scene, registry.environ, *commands)
        assert first[0].startswith("1.0.0 "), (first, scene.warnings)
        assert "changed" not in first[0], "a layer is shared: no program changes it"
        assert first[1:] == ["1.0.0"] * (npm is not None)
        assert any("packages are installed" in text for text in scene.warnings)
        registry.requests.clear()
        assert await use(scene, registry.environ, *commands) == first
        assert registry.requests == [], "the second session installs nothing"
    leak = await use(scene, registry.environ, "env")
    assert "npm_config_registry" not in leak[0]


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
@pytest.mark.slow
async def test_a_package_that_cannot_be_installed_is_reported_and_the_run_continues(
    scene: Scene,
) -> None:
    scene.user(sandbox={"packages": {"pip": ["no-such-thing"]}, "autoAllowBashIfSandboxed": True})
    async with running_registry() as registry:
        assert await use(scene, registry.environ, "echo here") == ["here"]
    assert any("no-such-thing" in text and "missing" in text for text in scene.warnings)


@for_each(
    "packages",
    [
        {"pip": ["--index-url=http://evil"]},
        {"pip": ["-r requirements.txt"]},
        {"pip": ["git+https://example.com/x"]},
        {"pip": ["./local"]},
        {"npm": ["--registry=http://evil"]},
        {"npm": ["file:../x"]},
        {"npm": ["https://example.com/x.tgz"]},
        {"apt": ["-o=Dir::Bin::dpkg=/bin/sh"]},
        {"apt": ["./local.deb"]},
        {"apt": ["jq/unstable"]},
        {"apt": ["jq-"]},
        {"use": ["everything"]},
        {"cargo": ["ripgrep"]},
    ],
)
def test_only_plain_registry_package_names_are_accepted(packages: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        read_environment({"packages": packages})


def test_the_documents_package_set_contains_document_libraries() -> None:
    environment = read_environment({"packages": {"use": ["documents"], "pip": ["rich"]}})
    assert environment.packages.python == (*PACKAGE_SETS["documents"], "rich")
    assert {"python-docx", "openpyxl", "pypdf", "scikit-learn"} < set(environment.packages.python)


def test_program_seconds_limits_cpu_time_up_to_half_an_hour() -> None:
    environment = read_environment({"programSeconds": 1800})
    assert environment.sandbox_limits.cpu_seconds == 1800
    own = read_environment({"programSeconds": 1800, "limits": {"cpuSeconds": 60}})
    assert own.sandbox_limits.cpu_seconds == 60
    with pytest.raises(InvalidInput):
        read_environment({"programSeconds": 1801})


def remove_layers(scene: Scene) -> None:
    for item in (scene.home / ".mainspring/packages").iterdir():
        if item.is_dir():
            shutil.rmtree(item)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is Debian's")
async def test_apt_packages_are_unpacked_from_a_mirror_and_available_to_programs(
    scene: Scene, tmp_path: Path
) -> None:
    scene.user(sandbox={"packages": {"apt": ["acme-tool"]}, "autoAllowBashIfSandboxed": True})
    mirror = tmp_path / "mirror"
    publish(mirror, "1.0")
    show = "acme-tool; stat -c %a $(command -v acme-tool); readlink $(command -v acme-link)"
    async with running_mirror(mirror) as (url, requests):
        sources = tmp_path / "acme.list"
        sources.write_text(f"deb [trusted=yes] {url} ./\n")
        environ = {"MAINSPRING_APT_SOURCES": str(sources)}
        first = await use(scene, environ, show)
        assert first == ["data 1.0 changed: Read-only file system\n755\n../lib/acme/tool"]
        requests.clear()
        assert await use(scene, environ, show) == first
        assert requests == [], "the second session loads nothing"

        remove_layers(scene)
        assert await use(scene, environ, show) == first, "installed again from the pin"

        remove_layers(scene)
        publish(mirror, "1.0", text="another one of the same version")
        assert "not found" in (await use(scene, environ, "acme-tool"))[0]
        assert any("acme-data:all=1.0" in text and "pinned" in text for text in scene.warnings)
