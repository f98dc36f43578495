"""What an agent of the service says of its `web_fetch`: how much of a page, and URLs of which
sources. A URL is known by the session's log: it stood in something that the source gave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.log.session_log import SessionLog
from mainspring.service.resources.agent_tools import BuiltinConfig
from mainspring.service.resources.agent_web_tools import (
    ExceptTools,
    NoSources,
    OnlyTools,
    SourceFilter,
    UrlSources,
)
from mainspring.wiring.run_options import WebFetchLimits

_CHARS_PER_TOKEN = 3
"""Leans low, so that a page has rather fewer tokens than it may."""
_URL = re.compile(r"https?://[^\s<>\"'`\\^{|}]{1,4096}", re.IGNORECASE)
_TRAILING_PUNCTUATION = ".,;:!?)]*_"
"""What ends a sentence, a bracket or an emphasis, and is rarely the end of a URL."""
_SOURCE_EVENTS = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        events.UserMessage,
        events.AgentToolUse,
        events.AgentToolResult,
        events.AgentCustomToolUse,
        events.UserCustomToolResult,
    )
)


def web_fetch_limits(configs: list[BuiltinConfig]) -> WebFetchLimits:
    """The strictest of what the agents of one session say of their `web_fetch`."""
    tokens = [config.max_content_tokens for config in configs if config.max_content_tokens]
    return WebFetchLimits(
        max_chars=min(tokens) * _CHARS_PER_TOKEN if tokens else None,
        sources=tuple(config.url_sources for config in configs if config.url_sources is not None),
    )


@dataclass(frozen=True, slots=True)
class KnownUrls:
    """Which URLs may be fetched in a session."""

    log: SessionLog
    session_id: str
    sources: tuple[UrlSources, ...]

    async def refusal(self, url: str) -> str | None:
        """Why it may not be fetched; `None`: it may."""
        if not self.sources:
            return None
        read = await self.log.read(self.session_id, types=_SOURCE_EVENTS)
        if all(_normalize_url(url) in _known_urls(read, source) for source in self.sources):
            return None
        return (
            "only URLs are fetched that stood, exactly so, in what this agent's url_sources name;"
            " this one did not"
        )


def _known_urls(read: list[Event], sources: UrlSources) -> set[str]:
    return {_normalize_url(url) for text in _texts(read, sources) for url in _urls(text)}


def _texts(read: list[Event], sources: UrlSources) -> Iterator[str]:
    names: dict[str, str] = {}
    for event in read:
        match event.payload:
            case events.AgentToolUse(name=name) | events.AgentCustomToolUse(name=name):
                names[event.id] = canonical_name(name)
            case (
                events.UserMessage(content=content)
                | events.UserCustomToolResult(content=content)
                | events.AgentToolResult(content=content)
            ) if _is_source(event.payload, names, sources):
                yield plain_text(content)
            case _:
                pass


def _is_source(payload: AnyPayload, names: Mapping[str, str], sources: UrlSources) -> bool:
    match payload:
        case events.UserMessage():
            return not isinstance(sources.user_input, NoSources)
        case events.UserCustomToolResult(custom_tool_use_id=call_id):
            return _is_allowed_by(sources.client_tool_results, names.get(call_id, ""))
        case events.AgentToolResult(tool_use_id=call_id, is_error=is_error):
            name = names.get(call_id, "")
            is_web = name in ("web_fetch", "web_search") and _is_allowed_by(
                sources.server_tool_results, name
            )
            return is_web and not is_error  # a failure only repeats what was asked for
        case _:
            return False


def _is_allowed_by(source: SourceFilter | None, name: str) -> bool:
    match source:
        case NoSources():
            return False
        case OnlyTools(tools=tools):
            return any(tool.name == name for tool in tools)
        case ExceptTools(tools=tools):
            return all(tool.name != name for tool in tools)
        case _:
            return True


def _urls(text: str) -> Iterator[str]:
    """As written, and without what follows it in a sentence or in Markdown."""
    for found in _URL.finditer(text):
        yield found[0]
        yield found[0].rstrip(_TRAILING_PUNCTUATION)
        yield re.split(r"[)\]]", found[0], maxsplit=1)[0]


def _normalize_url(url: str) -> str:
    """One spelling of what is the same to a server."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return url
    usual = {"http": 80, "https": 443}.get(parts.scheme.lower())
    place = host if port in (None, usual) else f"{host}:{port}"
    return urlunsplit((parts.scheme.lower(), place, parts.path or "/", parts.query, ""))
