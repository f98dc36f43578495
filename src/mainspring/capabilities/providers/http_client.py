"""One HTTP session for all calls to models: limits, the watchdog over silence, translated errors.

What the bytes of an answer mean is the adapters' business.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

import anyio
from msgspec import Struct

from mainspring.capabilities.providers.provider_errors import (
    excerpt,
    retry_after_seconds,
    status_failure,
)
from mainspring.capabilities.providers.sse_decoder import EventTooLarge, SseDecoder
from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Stalled

if TYPE_CHECKING:
    from collections.abc import Generator

    import aiohttp
    from anyio.abc import TaskGroup
else:
    aiohttp = LazyModule("aiohttp")  # a third of the time that an offline model takes to start

T = TypeVar("T")

_MIB = 1024 * 1024
_ERROR_BODY = 64 * 1024
_REQUEST_ID_HEADERS = ("request-id", "x-request-id", "x-goog-request-id")


class HttpLimits(Struct, frozen=True, kw_only=True):
    connect_seconds: float = 10
    stall_seconds: float = 45
    """Silence after which a stream says `Stalled`."""
    abort_seconds: float = 90
    """Silence after which a stream is given up."""
    whole_seconds: float = 600
    """For an answer that is not streamed, from first to last byte."""
    max_event_bytes: int = 64 * _MIB
    max_answer_bytes: int = 256 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider answers, and the headers that every call to it carries."""

    provider: str
    url: str
    secret: str = field(default="", repr=False)
    """Never shown in an error."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def with_bearer(
        cls, provider: str, url: str, *, key: str, headers: Mapping[str, str]
    ) -> Endpoint:
        """One that takes its key as a bearer token; a local server may need none."""
        key = key.strip()
        bearer = {"authorization": f"Bearer {key}"} if key else {}
        return cls(provider=provider, url=url, secret=key, headers={**bearer, **headers})


class HttpCall(Struct, frozen=True, kw_only=True):
    endpoint: Endpoint
    body: bytes
    request_id: str
    stream: bool


class ResponseStarted(Struct, frozen=True):
    """The provider has accepted the request."""

    provider_request_id: str | None


class WholeResponse(Struct, frozen=True):
    """An answer that is not a stream."""

    body: bytes


ResponsePart: TypeAlias = ResponseStarted | Stalled | WholeResponse | list[bytes]
"""A list is the data of one or more server-sent events."""


class PendingResponse:
    """A request on its way: headers may take longer than a stream may stay silent."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.settled = anyio.Event()
        self.response: aiohttp.ClientResponse | None = None
        self.error: Exception | None = None

    async def run(self, post: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        try:
            with self.scope:
                self.response = await post()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.error = error
        finally:
            if self.response and self.scope.cancel_called:
                self.response.close()
            self.settled.set()


class HttpClient:
    """Open once per process, with `async with`; hand it to every client."""

    def __init__(
        self,
        http_limits: HttpLimits | None = None,
        *,
        clock: Clock = clocks.now,
        trust_environment: bool = False,
    ) -> None:
        self.limits = http_limits or HttpLimits()
        self._clock = clock
        self._trust_environment = trust_environment
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._group = await stack.enter_async_context(anyio.create_task_group())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._group is not None:
            self._group.cancel_scope.cancel()
        self._group = None
        try:
            await self._stack.aclose()  # without the block's error, which the group would wrap
        finally:
            if self._session is not None:
                await self._session.close()
            self._session = None

    def exchange(self, http_call: HttpCall) -> Exchange:
        return Exchange(self, http_call)

    def send(self, http_call: HttpCall) -> tuple[PendingResponse, TaskGroup]:
        group = self._group
        if group is None:
            raise InvalidInput("the HTTP session for models is not open: use `async with Http()`")
        session = self._session = self._session or self._opened()
        sending = PendingResponse()
        headers = {
            **http_call.endpoint.headers,
            "content-type": "application/json",
            "accept": "text/event-stream" if http_call.stream else "application/json",
            "accept-encoding": "identity",  # a compressed stream comes in lumps
            "x-client-request-id": http_call.request_id,
        }

        async def post() -> aiohttp.ClientResponse:
            return await session.post(
                http_call.endpoint.url, data=http_call.body, headers=headers, allow_redirects=False
            )

        group.start_soon(sending.run, post)
        return sending, group

    def _opened(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # how many at once: the router's
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self.limits.connect_seconds, sock_read=None
            ),
            trust_env=self._trust_environment,
            read_bufsize=256 * 1024,
        )

    async def refuse_failures(self, http_call: HttpCall, response: aiohttp.ClientResponse) -> None:
        endpoint = http_call.endpoint
        if response.status == 200 and response.content_type != "text/html":
            return
        body = bytearray()
        with translate_errors(endpoint), anyio.move_on_after(5):
            while len(body) < _ERROR_BODY and (chunk := await response.content.readany()):
                body += chunk
        if response.status == 200:
            page = excerpt(bytes(body[:2000]).decode(errors="replace"), secret=endpoint.secret)
            what = f"a web page came instead of an answer: {page}"
            raise ProviderFailed(endpoint.provider, "malformed", what)
        raise status_failure(
            endpoint.provider,
            response.status,
            bytes(body),
            secret=endpoint.secret,
            retry_after=retry_after_seconds(response.headers, self._clock),
        )

    def finish(self, pending_response: PendingResponse, group: TaskGroup, *, keep: bool) -> None:
        response = pending_response.response
        if response is None:
            pending_response.scope.cancel()
        elif keep and self._group is group and not response.content.is_eof():
            group.start_soon(_drain, response)
        else:
            response.close()


class Exchange:
    """One request and its answer, part by part. No generator: a token passes through every one."""

    def __init__(self, http_client: HttpClient, http_call: HttpCall) -> None:
        self.is_answered = False
        """Set by the reader once it has all it needs, so that the connection can be used again."""
        self._client = http_client
        self._limits = http_client.limits
        self._call = http_call
        self._pending, self._group = http_client.send(http_call)
        self._response: aiohttp.ClientResponse | None = None
        self._decoder: SseDecoder | None = None
        self._is_silent = False
        self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._client.finish(
            self._pending, self._group, keep=self.is_answered and self._response is not None
        )

    async def read(self) -> ResponsePart | None:
        """`ResponseStarted`, then either batches of events or one `WholeResponse`; `Stalled` when
        it is silent, `None` at the end.

        Raises:
            ProviderFailed
        """
        if self._response is None:
            return await self._start()
        if self._is_over:
            return None
        with translate_errors(self._call.endpoint):
            if self._decoder is None:
                self._is_over = True
                return WholeResponse(await self._whole(self._response))
            return await self._next_batch(self._response, self._decoder)

    async def _start(self) -> ResponseStarted | Stalled:
        limits, settled = self._limits, self._pending.settled
        if self._call.stream and not self._is_silent:
            await _within(limits.stall_seconds, settled.wait)
            if not settled.is_set():
                self._is_silent = True
                return Stalled(seconds=limits.stall_seconds)
        is_stream, self._is_silent = self._call.stream, False
        if not settled.is_set():
            seconds = limits.abort_seconds - limits.stall_seconds
            await _within(seconds if is_stream else limits.whole_seconds, settled.wait)
        with translate_errors(self._call.endpoint):
            if self._pending.error is not None:
                raise self._pending.error
        if self._pending.response is None:
            raise self._silent()
        await self._client.refuse_failures(self._call, self._pending.response)
        self._response = self._pending.response
        if _is_stream(self._response, self._call):
            self._decoder = SseDecoder(max_event_bytes=limits.max_event_bytes)
        return ResponseStarted(_provider_request_id(self._response))

    async def _next_batch(
        self, response: aiohttp.ClientResponse, decoder: SseDecoder
    ) -> list[bytes] | Stalled | None:
        limits, content = self._limits, response.content
        while not self._is_over:
            chunk: bytes | None = content.read_nowait()
            if not chunk:
                patience = limits.abort_seconds if self._is_silent else 2 * limits.stall_seconds
                chunk = await _within(patience - limits.stall_seconds, content.readany)
            if chunk is None and self._is_silent:
                raise self._silent()
            if chunk is None:
                self._is_silent = True
                return Stalled(seconds=limits.stall_seconds)
            self._is_silent, self._is_over = False, not chunk
            if content.total_bytes > limits.max_answer_bytes:
                raise _response_too_large(self._call, limits)
            if batch := decoder.feed(chunk) if chunk else decoder.end():
                return batch
        return None

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        body: list[bytes] = []
        with anyio.move_on_after(self._limits.whole_seconds) as scope:
            while chunk := await response.content.readany():
                body.append(chunk)
                if response.content.total_bytes > self._limits.max_answer_bytes:
                    raise _response_too_large(self._call, self._limits)
        if scope.cancelled_caught:
            raise self._silent()
        return b"".join(body)

    def _silent(self) -> ProviderFailed:
        provider = self._call.endpoint.provider
        if self._call.stream:
            what = f"nothing came for {self._limits.abort_seconds:g} s"
            return ProviderFailed(provider, "stalled", what)
        what = f"no answer within {self._limits.whole_seconds:g} s"
        return ProviderFailed(provider, "timeout", what)


async def _within(seconds: float, wait: Callable[[], Awaitable[T]]) -> T | None:
    with anyio.move_on_after(max(0.0, seconds)):
        return await wait()
    return None


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the end of an answer that has said all it had to say; the connection can stay."""
    try:
        with anyio.move_on_after(1):
            while await response.content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        response.close()


def _provider_request_id(response: aiohttp.ClientResponse) -> str | None:
    found = (response.headers.get(name) for name in _REQUEST_ID_HEADERS)
    return next((value for value in found if value), None)


def _is_stream(response: aiohttp.ClientResponse, http_call: HttpCall) -> bool:
    """Some servers stream although not asked to, others do not although asked to."""
    if response.content_type == "text/event-stream":
        return True
    return http_call.stream and response.content_type != "application/json"


def _response_too_large(http_call: HttpCall, http_limits: HttpLimits) -> ProviderFailed:
    what = f"the answer is larger than {http_limits.max_answer_bytes} bytes"
    return ProviderFailed(http_call.endpoint.provider, "malformed", what)


def _why(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not accepted ({why}); SSL_CERT_FILE names your authority's"
    number = error.os_error.errno
    if number is None or isinstance(error, aiohttp.ClientSSLError):  # TLS has numbers of its own
        return str(error.os_error)
    return os.strerror(number)


@contextmanager
def translate_errors(endpoint: Endpoint) -> Generator[None, None, None]:
    """What aiohttp raises, as ours. The only place where it is."""
    provider = endpoint.provider
    try:
        yield
    except EventTooLarge as error:
        raise ProviderFailed(provider, "malformed", str(error)) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        _, at, place = str(error).rpartition("@")  # before it a name and a password may stand
        told = excerpt(f"{at and '…@'}{place}", secret=endpoint.secret)
        raise ProviderFailed(provider, "invalid_request", f"no such URL: {told}") from None
    except TimeoutError as error:
        raise ProviderFailed(provider, "timeout", "could not connect in time") from error
    except aiohttp.ClientConnectorError as error:
        told = excerpt(f"{error.host}:{error.port}: {_why(error)}", secret=endpoint.secret)
        raise ProviderFailed(provider, "connection", f"cannot connect to {told}") from error
    except (aiohttp.ClientError, OSError) as error:
        told = excerpt(str(error) or type(error).__name__, secret=endpoint.secret)
        raise ProviderFailed(provider, "connection", f"the connection failed: {told}") from error
    except ValueError as error:
        told = excerpt(str(error), secret=endpoint.secret)
        raise ProviderFailed(provider, "invalid_request", f"cannot be sent: {told}") from error
