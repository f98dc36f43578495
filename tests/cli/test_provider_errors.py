"""What a person sees when a model fails: the reason, and a hint that follows the failure."""

import json
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import pytest
from tests.fork_server import Run

from mainspring.capabilities.network.certificate_authority import CertificateAuthority
from mainspring.core import clock

Answer = Callable[[socket.socket], None]
WRONG = "as the test says"


def status(number: int, message: str = WRONG) -> Answer:
    def answer(client: socket.socket) -> None:
        client.recv(1_000_000)
        body = json.dumps({"error": {"message": message}})
        head = f"HTTP/1.1 {number} X\r\ncontent-type: application/json\r\nconnection: close\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())

    return answer


def hang_up(client: socket.socket) -> None:
    client.recv(10)


def unknown_authority(client: socket.socket) -> None:
    authority = CertificateAuthority(clock.now)
    authority.context("localhost").wrap_socket(client, server_side=True)


@contextmanager
def answering(answer: Answer) -> Generator[int]:
    """A server that answers every connection so; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):  # closed: the test is over
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        answer(client)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


FALLBACK = "--model A,B names a model that answers if A does not"
HTTP = "http://127.0.0.1:{port}/v1"
CLOUD: list[tuple[str, Answer, str, str]] = [
    (HTTP, status(401), "HTTP 401: as the test says", "OPENROUTER_API_KEY is wrong or revoked"),
    (HTTP, status(403), "HTTP 403: as the test says", "may not use this model: choose another"),
    (HTTP, status(404), "HTTP 404: as the test says", "`mainspring models ls` lists names"),
    (
        HTTP,
        status(429),
        "HTTP 429: as the test says",
        f"limit of your account is reached: try again later; {FALLBACK}",
    ),
    (
        HTTP,
        status(500),
        "HTTP 500: as the test says",
        f"the provider has a problem: try again later; {FALLBACK}",
    ),
    (
        HTTP,
        status(529),
        "HTTP 529: as the test says",
        f"the provider has too much to do: try again later; {FALLBACK}",
    ),
    (
        HTTP,
        status(400, "maximum context length is 9"),
        "maximum context length is 9",
        "a larger context window, or start a new session",
    ),
    (
        HTTP,
        hang_up,
        "the connection failed",
        "the connection was lost: check the network and HTTPS_PROXY",
    ),
    (
        "https://localhost:{port}/v1",
        unknown_authority,
        "its certificate is not accepted",
        "SSL_CERT_FILE names the certificate",
    ),
    (
        "http://127.0.0.1:9/v1",
        hang_up,
        "cannot connect to 127.0.0.1:9: Connection refused",
        "no server listens there: check OPENROUTER_BASE_URL",
    ),
    (
        "http://models.invalid/v1",
        hang_up,
        "the host name cannot be resolved",
        "the name of the host in OPENROUTER_BASE_URL",
    ),
]
LOCAL: list[tuple[str, Answer, str, str]] = [
    (
        "http://127.0.0.1:9/v1",
        hang_up,
        "Connection refused",
        "start the vllm server; VLLM_BASE_URL names another address",
    ),
    (HTTP, status(500), "HTTP 500: as the test says", "see the log of the server"),
    (HTTP, status(404), "HTTP 404: as the test says", "load it in the vllm server"),
    (HTTP, status(401), "HTTP 401: as the test says", "asks for a key"),
]


def ask(mainspring: Run, command: str, model: str, **variables: str) -> str:
    """What the command says on standard error, in one line."""
    if command == "chat":
        ended = mainspring("chat", "--model", model, stdin="hello\n", **variables)
    else:
        ended = mainspring("run", *command.split()[1:], "--model", model, "hello", **variables)
        assert ended.returncode == 1, ended.stderr
    return " ".join(ended.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "run -p", "chat"])
@pytest.mark.parametrize(("url", "answer", "problem", "hint"), CLOUD)
def test_a_failure_of_a_provider_is_shown_with_a_hint_that_follows_it(
    command: str, url: str, answer: Answer, problem: str, hint: str, mainspring: Run
):
    with answering(answer) as port:
        shown = ask(
            mainspring,
            command,
            "openrouter:test",
            OPENROUTER_API_KEY="secret-key",
            OPENROUTER_BASE_URL=url.format(port=port),
        )
    assert problem in shown
    assert f"hint: {hint}" in shown or f"{hint}" in shown.partition("hint: ")[2], shown
    assert shown.count("hint: ") == 1, shown
    assert "secret-key" not in shown


@pytest.mark.parametrize(("url", "answer", "problem", "hint"), LOCAL)
def test_only_a_local_server_that_does_not_answer_is_to_be_started(
    url: str, answer: Answer, problem: str, hint: str, mainspring: Run
):
    with answering(answer) as port:
        shown = ask(mainspring, "run", "vllm:test", VLLM_BASE_URL=url.format(port=port))
    assert problem in shown
    assert hint in shown.partition("hint: ")[2], shown


def test_how_long_a_model_is_waited_for_is_an_option_before_it_is_a_variable(mainspring: Run):
    variables = {"VLLM_BASE_URL": "http://127.0.0.1:9/v1"}
    wrong = mainspring("run", "-m", "vllm:test", "hi", MAINSPRING_MODEL_RETRY_SECONDS="soon")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: MAINSPRING_MODEL_RETRY_SECONDS: soon is not a number")
    option = ("run", "--retry-seconds", "0", "-m", "vllm:test", "hi")
    at_once = mainspring(*option, MAINSPRING_MODEL_RETRY_SECONDS="600", **variables)
    assert at_once.returncode == 1
    assert "trying again" not in at_once.stderr
