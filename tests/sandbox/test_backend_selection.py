"""Which sandbox is taken, and that nothing runs when none is to be had."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.abilities import require_bubblewrap, require_isolation
from tests.confined_command import run_confined

from mainspring.capabilities.sandbox.backend_selection import (
    BackendName,
    SandboxSettings,
    select_backend,
)
from mainspring.core.errors import SandboxFailed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="backends of Linux")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL: frozenset[BackendName] = frozenset(("bubblewrap", "landlock", "seatbelt", "docker", "none"))


def at_noon() -> datetime:
    return NOON


async def test_bubblewrap_is_preferred_and_the_probe_is_cached(tmp_path: Path):
    require_bubblewrap()
    cache = tmp_path / "folder/cache"
    with anyio.fail_after(60):
        first = await select_backend(SandboxSettings(), cache=cache)
        kept = cache.stat()
        again = await select_backend(SandboxSettings(), cache=cache)
    assert first == again
    assert (first.name, first.level) == ("bubblewrap", "isolated")
    assert cache.stat().st_mtime_ns == kept.st_mtime_ns
    assert kept.st_mode & 0o077 == 0


async def test_a_backend_that_passed_outside_is_tried_again_in_a_container(tmp_path: Path):
    """Both may share a home folder."""
    require_bubblewrap("in a container, what is tried first is what holds in a container in it")
    cache = tmp_path / "cache"
    with anyio.fail_after(60):
        outside = await select_backend(SandboxSettings(), cache=cache)
    code = (
        "import sys, anyio; from pathlib import Path;"
        " from mainspring.capabilities.sandbox.backend_selection import *;"
        " print(anyio.run(lambda: select_backend(SandboxSettings(), cache=Path(sys.argv[1]))).name)"
    )
    tried = run_confined(sys.executable, "-c", code, str(cache))
    assert outside.name not in tried.stdout
    assert tried.stdout.strip() == "landlock" or "no sandbox works here" in tried.stderr


async def test_a_backend_that_failed_is_tried_again_after_a_minute(tmp_path: Path):
    cache = tmp_path / "cache"
    no_image = SandboxSettings(forced="docker", image="there-is-no-such-image")

    async def written_at(now: datetime) -> tuple[int, str]:
        with anyio.fail_after(60), pytest.raises(SandboxFailed) as refused:
            await select_backend(no_image, cache=cache, clock=lambda: now)
        return cache.stat().st_ino, str(refused.value)

    first = await written_at(NOON)
    assert await written_at(NOON + timedelta(seconds=59)) == first
    assert (await written_at(NOON + timedelta(seconds=61)))[0] != first[0]
    assert "docker" in first[1]


@pytest.mark.parametrize("content", [b"", b"{", b'{"boot": "other", "shown": ["x"]}'])
async def test_an_invalid_cache_is_rewritten(tmp_path: Path, content: bytes):
    cache = tmp_path / "cache"
    require_isolation()
    cache.write_bytes(content)
    with anyio.fail_after(60):
        await select_backend(SandboxSettings(), cache=cache)
    assert b'"boot":' in cache.read_bytes()
    assert cache.read_bytes() != content


async def test_with_every_backend_disabled_nothing_runs(tmp_path: Path):
    with pytest.raises(SandboxFailed) as refused:
        await select_backend(SandboxSettings(disabled=ALL), cache=tmp_path / "cache")
    said = str(refused.value)
    assert "so nothing is run" in said
    for name in ("bubblewrap", "landlock", "seatbelt", "none"):
        assert f"{name}: disabled by the operator" in said
    assert list(tmp_path.iterdir()) == []


async def test_a_forced_backend_is_not_replaced_by_another(tmp_path: Path):
    with pytest.raises(SandboxFailed, match="seatbelt: is for macOS"):
        await select_backend(SandboxSettings(forced="seatbelt"), cache=tmp_path / "cache")
    with pytest.raises(SandboxFailed, match="docker: no image is given"):
        await select_backend(SandboxSettings(forced="docker"), cache=tmp_path / "cache")


async def test_running_unsandboxed_needs_a_permission_that_expires(tmp_path: Path):
    others = ALL - {"none"}
    leave = SandboxSettings(disabled=others, unsandboxed_until=NOON + timedelta(seconds=1))
    chosen = await select_backend(leave, cache=tmp_path / "cache", clock=at_noon)
    assert (chosen.name, chosen.level) == ("none", "none")
    for until in (None, NOON):
        over = SandboxSettings(disabled=others, unsandboxed_until=until)
        with pytest.raises(SandboxFailed, match="dangerously-run-unsandboxed"):
            await select_backend(over, cache=tmp_path / "cache", clock=at_noon)


async def test_the_unsandboxed_permission_is_unused_if_there_is_a_sandbox(tmp_path: Path):
    require_isolation()
    settings = SandboxSettings(unsandboxed_until=NOON + timedelta(days=1))
    with anyio.fail_after(60):
        chosen = await select_backend(settings, cache=tmp_path / "cache", clock=at_noon)
    assert chosen.level == "isolated"
