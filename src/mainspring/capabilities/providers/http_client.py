"""One HTTP session for all calls to models: limits, detection of silent streams, translated errors.

Adapters interpret the bytes of a response.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

import anyio

from mainspring.capabilities.providers.http_call import (
    HttpCall,
    HttpLimits,
    ResponsePart,
    ResponseStarted,
    WholeResponse,
)
from mainspring.capabilities.providers.http_errors import translate_errors
from mainspring.capabilities.providers.provider_errors import (
    excerpt,
    retry_after_seconds,
    status_failure,
)
from mainspring.capabilities.providers.silence_watch import SilenceWatch
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Stalled

if TYPE_CHECKING:
    import urllib.request as environment_proxies

    import aiohttp
    import yarl
    from anyio.abc import TaskGroup
else:
    # importing it takes a third of the time that an offline model needs to start
    aiohttp, yarl = LazyModule("aiohttp"), LazyModule("yarl")
    environment_proxies = LazyModule("urllib.request")

T = TypeVar("T")

_ERROR_BODY = 64 * 1024  # bytes of a refusal that are read for its message
_REQUEST_ID_HEADERS = ("request-id", "x-request-id", "x-goog-request-id")


class _StreamSilent(Exception):
    """Nothing was received for a while."""


class PendingResponse:
    """A request in progress: its headers may take longer than a stream may stay silent."""

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
    """Open once per process, with `async with`; pass it to every adapter."""

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
        self._proxies: dict[str, str | None] = {}
        self._connecting: dict[str, anyio.Event] = {}
        self.silence_watch = SilenceWatch()

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

    def exchange(self, http_call: HttpCall) -> HttpExchange:
        return HttpExchange(self, http_call)

    def connect_early(self, url: str) -> None:
        """Open a connection for the next call to the server of `url`. Nothing is sent over it, and
        if it fails, the call reports the reason."""
        if self._group is not None and (origin := _origin(url)) not in self._connecting:
            self._connecting[origin] = anyio.Event()
            self._group.start_soon(self._connect, url)

    async def _connect(self, url: str) -> None:
        session = self._session = self._session or self._open_session()
        assert session.connector is not None
        try:
            proxy = self._proxy(url)
            request = aiohttp.ClientRequest(
                "POST", yarl.URL(url), proxy=None if proxy is None else yarl.URL(proxy)
            )
            connection = await session.connector.connect(request, [], session.timeout)
            connection.release()
        except (aiohttp.ClientError, OSError, ValueError):
            pass
        finally:
            self._connecting.pop(_origin(url)).set()

    def send(self, http_call: HttpCall) -> tuple[PendingResponse, TaskGroup]:
        group = self._group
        if group is None:
            raise InvalidInput("the HTTP session for models is not open: use `async with Http()`")
        session = self._session = self._session or self._open_session()
        endpoint = http_call.endpoint
        sending = PendingResponse()
        headers = {
            **endpoint.headers,
            "content-type": "application/json",
            "accept": "text/event-stream" if http_call.stream else "application/json",
            "accept-encoding": "identity",  # a compressed stream arrives in large pieces
            "x-client-request-id": http_call.request_id,
        }

        async def post() -> aiohttp.ClientResponse:
            if self._connecting and (
                connection_ready := self._connecting.get(_origin(endpoint.url))
            ):
                await connection_ready.wait()
            return await session.post(
                endpoint.url,
                data=http_call.body,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy(endpoint.url),
            )

        group.start_soon(sending.run, post)
        return sending, group

    def _proxy(self, url: str) -> str | None:
        """The proxy that the environment names for a URL, looked up once. If aiohttp looked it up
        (`trust_env`), it would use two threads for every request."""
        if not self._trust_environment:
            return None
        if url not in self._proxies:
            target = urlsplit(url)
            is_direct = environment_proxies.proxy_bypass(target.hostname or "")
            proxies = {} if is_direct else environment_proxies.getproxies()
            self._proxies[url] = proxies.get(target.scheme)
        return self._proxies[url]

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the router limits concurrency
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self.limits.connect_seconds, sock_read=None
            ),
            read_bufsize=256 * 1024,
        )

    async def refuse_failures(self, http_call: HttpCall, response: aiohttp.ClientResponse) -> None:
        endpoint = http_call.endpoint
        if response.status == 200 and response.content_type != "text/html":
            return
        body = bytearray()
        with translate_errors(endpoint.provider, endpoint.secret), anyio.move_on_after(5):
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


class HttpExchange:
    """One request and its response, part by part. Not a generator, since every token passes
    through."""

    def __init__(self, http_client: HttpClient, http_call: HttpCall) -> None:
        self.is_answered = False
        """Set by the reader once it has all it needs, so that the connection can be reused."""
        self._client = http_client
        self._limits = http_client.limits
        self._call = http_call
        self._pending, self._group = http_client.send(http_call)
        self._response: aiohttp.ClientResponse | None = None
        self._decoder: SseDecoder | None = None
        self._is_silent = False
        self._is_over = False
        self._is_reading = False
        self.silent_at = 0.0
        """On the monotonic clock: when the stream counts as silent, unless something arrives
        first."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._client.silence_watch.remove(self)
        self._client.finish(
            self._pending, self._group, keep=self.is_answered and self._response is not None
        )

    async def read(self) -> ResponsePart | None:
        """`ResponseStarted`, then either batches of events or one `WholeResponse`; `Stalled` when
        the stream is silent, `None` at the end.

        Raises:
            ProviderFailed
        """
        if self._response is None:
            return await self._start()
        if self._is_over:
            return None
        try:
            if self._decoder is None:
                self._is_over = True
                return WholeResponse(await self._whole(self._response))
            return await self._next_batch(self._response, self._decoder)
        except (aiohttp.ClientError, OSError, ValueError):
            with self._translate_errors():
                raise

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self._call.endpoint.provider, self._call.endpoint.secret)

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
        with self._translate_errors():
            if self._pending.error is not None:
                raise self._pending.error
        if self._pending.response is None:
            raise self._silence_error()
        await self._client.refuse_failures(self._call, self._pending.response)
        self._response = self._pending.response
        if _is_stream(self._response, self._call):
            self._decoder = SseDecoder(max_event_bytes=limits.max_event_bytes)
            self.silent_at = time.monotonic() + limits.stall_seconds
            self._client.silence_watch.add(self, self._group)
        return ResponseStarted(_provider_request_id(self._response))

    async def _next_batch(
        self, response: aiohttp.ClientResponse, decoder: SseDecoder
    ) -> list[bytes] | Stalled | None:
        limits, content = self._limits, response.content
        while not self._is_over:
            try:
                self._is_reading = True
                chunk = await content.readany()
            except _StreamSilent as silence:
                if content.exception() is silence:
                    # None makes it readable again, although the type does not allow it
                    content.set_exception(None)  # pyright: ignore[reportArgumentType]
                if self._is_silent:
                    raise self._silence_error() from None
                self._is_silent = True
                return Stalled(seconds=limits.stall_seconds)
            finally:
                self._is_reading = False
            self.silent_at = time.monotonic() + limits.stall_seconds
            self._is_silent, self._is_over = False, not chunk
            if content.total_bytes > limits.max_answer_bytes:
                raise _response_too_large(self._call, limits)
            if batch := decoder.feed(chunk) if chunk else decoder.end():
                return batch
        return None

    def on_silence(self) -> None:
        """Wake the reader with an exception. If nobody is reading, the stream is not silent."""
        limits = self._limits
        patience = limits.abort_seconds - limits.stall_seconds
        self.silent_at = time.monotonic() + (patience if self._is_reading else limits.stall_seconds)
        if self._is_reading and self._response is not None:
            self._response.content.set_exception(_StreamSilent())

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        body: list[bytes] = []
        with anyio.move_on_after(self._limits.whole_seconds) as scope:
            while chunk := await response.content.readany():
                body.append(chunk)
                if response.content.total_bytes > self._limits.max_answer_bytes:
                    raise _response_too_large(self._call, self._limits)
        if scope.cancelled_caught:
            raise self._silence_error()
        return b"".join(body)

    def _silence_error(self) -> ProviderFailed:
        provider = self._call.endpoint.provider
        if self._call.stream:
            what = f"nothing came for {self._limits.abort_seconds:g} s"
            return ProviderFailed(provider, "stalled", what)
        what = f"no answer within {self._limits.whole_seconds:g} s"
        return ProviderFailed(provider, "timeout", what)


def _origin(url: str) -> str:
    target = urlsplit(url)
    return f"{target.scheme}://{target.netloc}"


async def _within(seconds: float, wait: Callable[[], Awaitable[T]]) -> T | None:
    with anyio.move_on_after(max(0.0, seconds)):
        return await wait()
    return None


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the rest of a finished response, so that the connection can be reused."""
    try:
        with anyio.move_on_after(1):
            while await response.content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        response.close()


def _provider_request_id(response: aiohttp.ClientResponse) -> str | None:
    values = (response.headers.get(name) for name in _REQUEST_ID_HEADERS)
    return next((value for value in values if value), None)


def _is_stream(response: aiohttp.ClientResponse, http_call: HttpCall) -> bool:
    """Some servers stream without a request for it; others ignore the request."""
    if response.content_type == "text/event-stream":
        return True
    return http_call.stream and response.content_type != "application/json"


def _response_too_large(http_call: HttpCall, http_limits: HttpLimits) -> ProviderFailed:
    what = f"the answer is larger than {http_limits.max_answer_bytes} bytes"
    return ProviderFailed(http_call.endpoint.provider, "malformed", what)
