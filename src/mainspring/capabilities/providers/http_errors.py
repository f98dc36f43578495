"""Translates errors of aiohttp during a call to a model into `ProviderFailed`, in this one
place."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainspring.capabilities.providers.provider_errors import excerpt
from mainspring.capabilities.providers.sse_decoder import EventTooLarge
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    from collections.abc import Generator

    import aiohttp
else:
    aiohttp = LazyModule("aiohttp")  # importing it takes a third of an offline start


def _reason(error: aiohttp.ClientConnectorError) -> tuple[ProviderFailure, str]:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return "certificate", f"its certificate is not accepted ({why})"
    number = error.os_error.errno
    if isinstance(error, aiohttp.ClientConnectorDNSError):  # getaddrinfo has its own numbers
        return "unresolved", "the host name cannot be resolved"
    if number is None or isinstance(error, aiohttp.ClientSSLError):  # TLS has its own numbers
        return "connection", str(error.os_error)
    kind = "refused" if number == errno.ECONNREFUSED else "connection"
    return kind, os.strerror(number)


@contextmanager
def translate_errors(provider: str, secret: str) -> Generator[None, None, None]:
    """Translate errors of the block, without `secret` in their messages."""
    try:
        yield
    except EventTooLarge as error:
        raise ProviderFailed(provider, "malformed", str(error)) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        _, at, place = str(error).rpartition("@")  # a user name and password may precede it
        problem = excerpt(f"{at and '…@'}{place}", secret=secret)
        raise ProviderFailed(provider, "invalid_request", f"no such URL: {problem}") from None
    except TimeoutError as error:
        raise ProviderFailed(provider, "timeout", "could not connect in time") from error
    except aiohttp.ClientConnectorError as error:
        kind, why = _reason(error)
        problem = excerpt(f"{error.host}:{error.port}: {why}", secret=secret)
        raise ProviderFailed(provider, kind, f"cannot connect to {problem}") from error
    except (aiohttp.ClientError, OSError) as error:
        problem = excerpt(str(error) or type(error).__name__, secret=secret)
        raise ProviderFailed(provider, "connection", f"the connection failed: {problem}") from error
    except ValueError as error:
        problem = excerpt(str(error), secret=secret)
        raise ProviderFailed(provider, "invalid_request", f"cannot be sent: {problem}") from error
