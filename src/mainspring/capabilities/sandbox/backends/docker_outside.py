"""Holds a container for the keeper, and starts programs in it in place of the agent.

There are three processes on the host: this one holds the container's input, so that the container
ends when this process is killed; its child talks to the keeper; and a detached process kills the
container when both are gone. A program's variables never reach the environment of any of them.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

from mainspring.capabilities.sandbox.backends.agent import CONTROL_FD, serve
from mainspring.capabilities.sandbox.backends.bare_inside import kill_descendants
from mainspring.capabilities.sandbox.wire import unpack
from mainspring.files.openat import OpenDescriptor

ORDERS_FD = CONTROL_FD + 1
_START_SECONDS = 14.0  # just below the keeper's limit for a launch, so that the cause is reported
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class DockerContainer:
    def __init__(self, packed: bytes) -> None:
        name, program, run, user = unpack(packed)
        self.name = os.fsdecode(name)
        self._program = os.fsdecode(program)
        self._run = [os.fsdecode(word) for word in unpack(run)]
        self._user = os.fsdecode(user)

    def start(self) -> None:
        """Start the container and wait for its first process. Its input stays open while this
        process lives.

        Raises:
            OSError: it did not come up.
        """
        container_input, self._hold = os.pipe()
        output, container_output = os.pipe()
        _spawn(self._run, stdin=container_input, stdout=container_output)
        os.close(container_input)
        os.close(container_output)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        is_up = bool(poll.poll(_START_SECONDS * 1000)) and os.read(output, 2) == b"up"
        os.close(output)
        if not is_up:
            raise OSError("the container did not start")

    def leave_hold(self) -> None:
        os.close(self._hold)

    def exec(
        self, cwd: str, argv: list[str], env: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command that starts a program in the container. Variables are passed as arguments:
        our own environment decides which engine is used."""
        options = [f"--env={name}={value}" for name, value in env.items()]
        command = [self._program, "exec", "--interactive", f"--user={self._user}"]
        return [*command, f"--workdir={cwd}", *options, self.name, *argv], _ENVIRONMENT

    def sweep(self) -> None:
        """Kill all processes in the container but the first, which ignores signals from inside;
        then our children that wait for them."""
        inside = [self._program, "exec", self.name, "sh", "-c", "kill -9 -1"]
        os.waitpid(_spawn(inside), 0)
        kill_descendants()

    def kill(self) -> None:
        os.waitpid(_spawn([self._program, "kill", self.name]), 0)


def main() -> None:
    os.set_inheritable(CONTROL_FD, False)
    with open(ORDERS_FD, "rb") as stream:
        container = DockerContainer(stream.read())
    hold = _start_reaper(container)
    try:
        container.start()
    except OSError as error:
        os.write(2, f"docker: {error}\n".encode())
        sys.exit(125)
    agent = os.fork()
    if agent == 0:
        try:
            container.leave_hold()
            os.close(hold)
            control = _socket.socket(fileno=CONTROL_FD)
            serve(control, sweep=container.sweep, dress=container.exec)
        finally:
            os._exit(0)
    os.close(CONTROL_FD)
    os.waitpid(agent, 0)


def _start_reaper(container: DockerContainer) -> int:
    """Start a detached process that kills the container when this one is gone. It is not our
    descendant, so killing our process tree does not kill it. It waits until the returned
    descriptor is closed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.setsid()
            for descriptor in (write_end, CONTROL_FD):
                os.close(descriptor)
            os.read(read_end, 1)
            container.kill()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(read_end)
    return write_end


def _spawn(argv: list[str], *, stdin: int | None = None, stdout: int | None = None) -> int:
    """Start a command that inherits only the given streams and our standard error."""
    with OpenDescriptor(os.open(os.devnull, os.O_RDWR)) as nothing:
        return os.posix_spawn(
            argv[0],
            argv,
            _ENVIRONMENT,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing if stdin is None else stdin, 0),
                (os.POSIX_SPAWN_DUP2, nothing if stdout is None else stdout, 1),
            ],
        )
