"""Mounts against those who name the repository, serve it, or work in the workspace meanwhile."""

import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path

import pytest

from mainspring.core.clock import now
from mainspring.core.errors import NotFound
from mainspring.service.sessions.resource_types import (
    FileContent,
    FileResource,
    RepositoryResource,
    SessionResource,
)
from mainspring.service.sessions.workspaces.session_mounts import Mounts
from mainspring.wiring.service_workspaces import open_git_cloner, open_mounts

LOOPBACK = (ip_network("127.0.0.0/8"),)
TOKEN = "a-token-for-one-host-only"


@dataclass(slots=True)
class RepositoryHost:
    """A web server with a bare repository on it, or one that sends people elsewhere."""

    folder: Path
    url: str = ""
    redirect: str = ""
    meanwhile: Callable[[], None] = lambda: None
    asked: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])


class _Pages(SimpleHTTPRequestHandler):
    def __init__(self, host: RepositoryHost, *request: object) -> None:
        self.host = host
        super().__init__(*request, directory=str(host.folder))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.host.asked.append(self.path)
        self.host.keys.append(self.headers.get("authorization", ""))
        self.host.meanwhile()
        if self.host.redirect:
            self.send_response(302)
            self.send_header("location", self.host.redirect + self.path)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def run_host(folder: Path) -> Generator[RepositoryHost]:
    host = RepositoryHost(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, host)) as server:
        host.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join(60)


@pytest.fixture(scope="module")
def repository_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tool.git` in it, as a plain web server gives it out."""
    folder = tmp_path_factory.mktemp("published")
    work = folder / "work"
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (
        ("init", "--quiet", str(work)),
        ("-C", str(work), *who, "commit", "--quiet", "--allow-empty", "-m", "first"),
        ("clone", "--quiet", "--bare", str(work), str(folder / "tool.git")),
        ("-C", str(folder / "tool.git"), "update-server-info"),
    ):
        subprocess.run(["git", *arguments], check=True, timeout=60)
    return folder


async def no_file(_tenant: str, id_: str) -> FileContent:
    raise NotFound("file", id_)


async def some_file(_tenant: str, _id: str) -> FileContent:
    return FileContent(content=b"theirs", media_type="text/plain")


def repository(url: str, path: str = "/workspace/tool") -> RepositoryResource:
    return RepositoryResource(
        id="sesrsc_1", url=url, mount_path=path, created_at=now(), updated_at=now()
    )


def file(path: str) -> FileResource:
    return FileResource(
        id="sesrsc_2", file_id="file_1", mount_path=path, created_at=now(), updated_at=now()
    )


def loopback_mounts(max_bytes: int = 1 << 20) -> Mounts:
    """Of an operator who allows addresses of this machine."""
    return open_mounts(no_file, open_git_cloner(LOOPBACK, max_bytes=max_bytes))


async def prepare_mount(mounts: Mounts, workspace: Path, resource: SessionResource) -> str:
    [said] = await mounts.mount(workspace, [resource], tenant="acme", tokens={resource.id: TOKEN})
    return said


async def test_an_allowed_repository_is_cloned_with_its_token(
    tmp_path: Path, repository_folder: Path
):
    mounts = loopback_mounts()
    with run_host(repository_folder) as host:
        said = await prepare_mount(mounts, tmp_path / "ws", repository(f"{host.url}/tool.git"))
    assert said.endswith("is at tool."), said
    assert (tmp_path / "ws" / "tool" / ".git").is_dir()
    assert host.keys[0].startswith("Basic ")


async def test_the_token_of_a_repository_is_not_sent_to_a_redirect_target(
    tmp_path: Path, repository_folder: Path
):
    mounts = loopback_mounts()
    with run_host(repository_folder) as thief, run_host(repository_folder) as host:
        host.redirect = thief.url
        said = await prepare_mount(mounts, tmp_path / "ws", repository(f"{host.url}/tool.git"))
    assert "could not be mounted" in said
    assert thief.asked == []


async def test_a_repository_at_a_private_address_is_never_contacted(
    tmp_path: Path, repository_folder: Path
):
    mounts = open_mounts(no_file, open_git_cloner())
    with run_host(repository_folder) as host:
        said = await prepare_mount(mounts, tmp_path / "ws", repository(f"{host.url}/tool.git"))
    assert "no public address" in said
    assert host.asked == []


@pytest.mark.parametrize("url", ["ext::sh -c true", "/etc", "file:///etc", "git://127.0.0.1/x"])
async def test_only_web_urls_are_cloned(tmp_path: Path, url: str):
    assert "could not be mounted" in await prepare_mount(
        loopback_mounts(), tmp_path / "ws", repository(url)
    )


async def test_a_folder_replaced_by_a_link_during_cloning_is_not_followed(
    tmp_path: Path, repository_folder: Path
):
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    (workspace / "deep").mkdir(parents=True)
    outside.mkdir()

    def swap() -> None:
        if not (workspace / "deep").is_symlink():
            (workspace / "deep").rmdir()
            (workspace / "deep").symlink_to(outside)

    mounts = loopback_mounts()
    with run_host(repository_folder) as host:
        host.meanwhile = swap
        said = await prepare_mount(
            mounts, workspace, repository(f"{host.url}/tool.git", "/workspace/deep/tool")
        )
    assert "could not be mounted" in said
    assert list(outside.iterdir()) == []


async def test_a_file_is_not_mounted_through_a_link_that_leads_out(tmp_path: Path):
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "data").symlink_to(outside)
    said = await prepare_mount(
        open_mounts(some_file, open_git_cloner()), workspace, file("/workspace/data/x")
    )
    assert "could not be mounted" in said
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["/workspace/.mainspring/hands/sandboxes.json", "/.mainspring/settings.json"]
)
async def test_files_cannot_be_mounted_in_the_mainspring_folder(tmp_path: Path, path: str):
    workspace = tmp_path / "ws"
    said = await prepare_mount(open_mounts(some_file, open_git_cloner()), workspace, file(path))
    assert "could not be mounted" in said
    assert not (workspace / ".mainspring").exists()


async def test_a_repository_that_is_too_large_is_refused(tmp_path: Path, repository_folder: Path):
    mounts = loopback_mounts(max_bytes=1)
    with run_host(repository_folder) as host:
        said = await prepare_mount(mounts, tmp_path / "ws", repository(f"{host.url}/tool.git"))
    assert "more than" in said
    assert not (tmp_path / "ws" / "tool").exists()
    assert [item.name for item in tmp_path.iterdir() if "clone" in item.name] == []


async def test_git_connects_to_the_address_that_was_checked(
    tmp_path: Path, repository_folder: Path
):
    async def resolved(_host: str) -> list[str]:
        return ["127.0.0.1"]

    cloning = open_git_cloner(LOOPBACK, resolver=resolved)
    with run_host(repository_folder) as host:
        named = host.url.replace("127.0.0.1", "repository.invalid")  # nobody else knows it
        said = await prepare_mount(
            open_mounts(no_file, cloning), tmp_path / "ws", repository(f"{named}/tool.git")
        )
    assert said.endswith("is at tool."), said
