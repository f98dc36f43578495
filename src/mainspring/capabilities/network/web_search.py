"""Web search through the provider that the operator configured: SearXNG, Brave or Tavily. The web
search of a model API is in `model_search.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, NetworkRefused
from mainspring.core.ports import SearchHit

ProviderName: TypeAlias = Literal["searxng", "brave", "tavily"]
_MAX_BYTES = 2_000_000  # of a page of results
_TIMEOUT = aiohttp.ClientTimeout(total=20.0)
_KEYS: Mapping[str, str | None] = {
    "searxng": None,
    "brave": "BRAVE_API_KEY",
    "tavily": "TAVILY_API_KEY",
}
_ADDRESSES = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}


class _Hit(Struct, frozen=True):
    url: str
    title: str | None = None
    content: str | None = None
    """Only from SearXNG and Tavily."""
    description: str | None = None
    """Only from Brave."""


class _Web(Struct, frozen=True):
    results: tuple[_Hit, ...] = ()


class _Answer(Struct, frozen=True):
    results: tuple[_Hit, ...] = ()
    web: _Web | None = None
    """Only from Brave."""


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The whole body, up to a limit: `StreamReader.read` returns only what has arrived so far."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise NetworkRefused(f"an answer of more than {max_bytes} bytes")
    return bytes(body)


class WebSearch(Struct, frozen=True, kw_only=True):
    """Searches with one provider."""

    provider: ProviderName
    url: str
    key: str = ""

    async def __call__(self, query: str, *, count: int) -> list[SearchHit]:
        """Raises: NetworkRefused: there is no answer; the message says why."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=False) as session,
                self._request(session, query, count) as response,
            ):
                content = await read_body(response, _MAX_BYTES)
                if response.status != 200:
                    raise NetworkRefused(f"{self.provider} answered {response.status}")
            answer = msgspec.json.decode(content, type=_Answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = f"{self.provider} did not answer ({type(error).__name__})"
            raise NetworkRefused(what) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise NetworkRefused(f"{self.provider} did not send search results") from error
        hits = answer.results if answer.web is None else answer.web.results
        return [
            SearchHit(url=hit.url, title=hit.title or "", text=hit.content or hit.description or "")
            for hit in hits[:count]
        ]

    def _request(
        self, session: aiohttp.ClientSession, query: str, count: int
    ) -> aiohttp.client._RequestContextManager:  # pyright: ignore[reportPrivateUsage] (its return type has no public name)
        match self.provider:
            case "searxng":
                words = {"q": query, "format": "json"}
                return session.get(f"{self.url}/search", params=words, allow_redirects=False)
            case "brave":
                headers = {"X-Subscription-Token": self.key, "Accept": "application/json"}
                words = {"q": query, "count": str(min(count, 20))}
                return session.get(self.url, params=words, headers=headers, allow_redirects=False)
            case "tavily":
                headers = {"Authorization": f"Bearer {self.key}"}
                body = {"query": query, "max_results": count}
                return session.post(self.url, json=body, headers=headers, allow_redirects=False)


def parse_search_provider(text: str, secrets: Mapping[str, str]) -> WebSearch:
    """Parse `NAME` or `NAME:URL`; SearXNG needs a URL, the others a key.

    Raises: InvalidInput.
    """
    name, _, address = text.strip().partition(":")
    if name not in _KEYS:
        names = ", ".join((*_KEYS, "anthropic"))
        raise InvalidInput(f"MAINSPRING_SEARCH: {name!r} is not one of {names}")
    url = (address or _ADDRESSES.get(name, "")).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidInput(f"MAINSPRING_SEARCH: {name} needs an address: {name}:https://...")
    variable = _KEYS[name]
    if variable is not None and not secrets.get(variable):
        raise InvalidInput(f"MAINSPRING_SEARCH: {name} needs a key in {variable}")
    key = "" if variable is None else secrets[variable]
    return WebSearch(provider=cast("ProviderName", name), url=url, key=key)
