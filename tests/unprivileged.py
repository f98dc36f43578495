"""Code that runs without root's rights, which file permissions do not bind."""

import os
from collections.abc import Generator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def unprivileged() -> Generator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
