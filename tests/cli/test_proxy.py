"""Proxy and certificate settings of the environment hold for calls to models."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.upstream import Upstream
from tests.fork_server import Run

from mainspring.capabilities.network.certificate_authority import CertificateAuthority
from mainspring.core import clock

NAME = "models.test"
"""A host that only the proxy knows."""


@pytest.fixture
def authority(tmp_path: Path) -> tuple[CertificateAuthority, Path]:
    made = CertificateAuthority(clock.now)
    file = tmp_path / "authority.pem"
    file.write_bytes(made.certificate)
    return made, file


@contextmanager
def run_proxy(
    upstream: Upstream, authority: CertificateAuthority
) -> Generator[tuple[str, list[str]]]:
    """A proxy that is `models.test` itself; its address, and whom it was asked for."""
    port = urlsplit(upstream.url).port
    asked: list[str] = []

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):  # who does not like the certificate goes away
            asked.append(client.recv(65536).split(b"\r\n")[0].decode())
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            secured = authority.context(NAME).wrap_socket(client, server_side=True)
            with secured, socket.create_connection(("127.0.0.1", port)) as model:
                threading.Thread(target=pump, args=(secured, model), daemon=True).start()
                pump(model, secured)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):  # closed: the test is over
                while True:
                    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            sink.sendall(content)


def test_a_model_is_called_through_the_proxy_with_the_configured_authority(
    mainspring_from_nothing: Run, upstream: Upstream, authority: tuple[CertificateAuthority, Path]
):
    ours, file = authority
    with run_proxy(upstream, ours) as (proxy, asked):
        variables = {
            "MAINSPRING_MODEL": "ollama:test",
            "OLLAMA_BASE_URL": f"https://{NAME}/v1",
            "HTTPS_PROXY": proxy,
        }
        refused = mainspring_from_nothing("models", "test", "ollama:test", **variables)
        assert refused.returncode == 1
        assert "certificate" in refused.stderr
        assert "SSL_CERT_FILE" in refused.stderr
        assert "bug" not in refused.stderr
        answered = mainspring_from_nothing("run", "hi", SSL_CERT_FILE=str(file), **variables)
    assert (answered.returncode, answered.stdout) == (0, "That is all I know.\n"), answered.stderr
    assert set(asked) == {f"CONNECT {NAME}:443 HTTP/1.1"}


def test_no_proxy_hosts_are_called_directly(mainspring: Run, upstream: Upstream):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    variables = {**upstream.variables, "HTTP_PROXY": nobody}
    direct = mainspring("models", "test", "ollama:test", NO_PROXY="127.0.0.1", **variables)
    assert direct.returncode == 0, direct.stderr
