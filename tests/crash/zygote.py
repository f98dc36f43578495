"""A process that has imported everything and forks a child per order: a life costs milliseconds.

Single-threaded and without an event loop, so that forking is safe. The parent sends an order and
the writing end of a pipe, and is told the child's id. It sends a child's id to bury it, and the
negative of it to wait until it is stopped.
"""

import gc
import os
import socket
import sys
import traceback

import anyio
from tests.crash.child import live
from tests.crash.stores import preload
from tests.crash.wire import ORDERS, Broke, Order, encoded


def serve(wire: socket.socket) -> None:
    anyio.run(anyio.sleep, 0)  # loads the backend
    gc.freeze()
    while True:
        request, descriptors = _receive(wire)
        if not request:
            return
        if descriptors:
            wire.send(b"%d\n" % _fork(ORDERS.decode(request), descriptors[0], wire))
        else:
            pid = int(request)
            _, status = os.waitpid(abs(pid), os.WUNTRACED if pid < 0 else 0)
            wire.send(b"%d\n" % status)


def _receive(wire: socket.socket) -> tuple[bytes, list[int]]:
    request, descriptors, _, _ = socket.recv_fds(wire, 1 << 20, 1)
    while request and not request.endswith(b"\n"):
        request += wire.recv(1 << 20)
    return request, descriptors


def _fork(order: Order, reports: int, wire: socket.socket) -> int:
    if child := os.fork():
        os.close(reports)
        return child
    try:
        wire.close()
        anyio.run(live, order, reports)
        os._exit(0)
    except BaseException:  # noqa: BLE001 (told to the parent, which judges it)
        os.write(reports, encoded(Broke(trace=traceback.format_exc())))
    finally:
        os._exit(1)


def main() -> None:
    descriptor, url, *openers = sys.argv[1:]
    for opener in openers:
        preload(url, opener)
    with socket.socket(fileno=int(descriptor)) as wire:
        serve(wire)


if __name__ == "__main__":
    main()
