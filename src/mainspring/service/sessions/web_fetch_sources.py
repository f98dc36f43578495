"""Limits of an agent's `web_fetch`: the length of a page's text, and the sources of URLs, which are
looked up in the session's log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit, urlunsplit

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload, Event, event_types
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.log.session_log import SessionLog
from mainspring.runtime.run_options import SearchDomains, WebFetchLimits
from mainspring.service.resources.agent_tools import BuiltinConfig
from mainspring.service.resources.agent_web_tools import (
    ExceptTools,
    NoSources,
    OnlyTools,
    SourceFilter,
    UrlSources,
)

_CHARS_PER_TOKEN = 3
"""A low estimate, so that a page has fewer tokens than allowed rather than more."""
_URL = re.compile(r"https?://[^\s<>\"'`\\^{|}]{1,4096}", re.IGNORECASE)
_TRAILING_PUNCTUATION = ".,;:!?)]*_"
"""Characters that end a sentence, a bracket or an emphasis, and rarely a URL."""
_SOURCE_EVENTS = event_types(
    events.UserMessage,
    events.AgentToolUse,
    events.AgentToolResult,
    events.AgentCustomToolUse,
    events.UserCustomToolResult,
)


def web_fetch_limits(configs: list[BuiltinConfig]) -> WebFetchLimits:
    """The strictest limits that the agents of one session set for `web_fetch`."""
    tokens = [config.max_content_tokens for config in configs if config.max_content_tokens]
    sources = [config.url_sources for config in configs if config.url_sources is not None]
    return WebFetchLimits(
        max_chars=min(tokens) * _CHARS_PER_TOKEN if tokens else None,
        url_refusal=partial(_url_refusal, sources) if sources else None,
    )


def search_domains(configs: list[BuiltinConfig]) -> SearchDomains:
    """The strictest limits that the agents of one session set for `web_search`."""
    allowed = [config.allowed_domains for config in configs if config.allowed_domains is not None]
    blocked = [domain for config in configs for domain in config.blocked_domains or ()]
    common = (
        [domain for domain in allowed[0] if all(domain in group for group in allowed)]
        if allowed
        else None
    )
    return SearchDomains(
        allowed=None if common is None else tuple(common), blocked=tuple(dict.fromkeys(blocked))
    )


async def _url_refusal(
    sources: Sequence[UrlSources], log: SessionLog, session_id: str, url: str
) -> str | None:
    """The reason to refuse a URL; `None` if all sources allow it."""
    logged = await log.read(session_id, types=_SOURCE_EVENTS)
    if all(_normalize_url(url) in _known_urls(logged, source) for source in sources):
        return None
    return (
        "this URL is in none of the agent's url_sources; a URL must occur there exactly as it is"
        " requested"
    )


def _known_urls(logged: list[Event], sources: UrlSources) -> set[str]:
    return {_normalize_url(url) for text in _texts(logged, sources) for url in _urls(text)}


def _texts(logged: list[Event], sources: UrlSources) -> Iterator[str]:
    names: dict[str, str] = {}
    for event in logged:
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
            return is_web and not is_error  # an error only repeats the URL of the request
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
    """The URLs in a text: as written, and without punctuation that follows in a sentence or in
    Markdown."""
    for match in _URL.finditer(text):
        yield match[0]
        yield match[0].rstrip(_TRAILING_PUNCTUATION)
        yield re.split(r"[)\]]", match[0], maxsplit=1)[0]


def _normalize_url(url: str) -> str:
    """The same spelling for URLs that a server treats as equal."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return url
    default_port = {"http": 80, "https": 443}.get(parts.scheme.lower())
    place = host if port in (None, default_port) else f"{host}:{port}"
    return urlunsplit((parts.scheme.lower(), place, parts.path or "/", parts.query, ""))
