"""The configuration of the web tools: which URLs they may fetch, and the user's location."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput

T = TypeVar("T")
Country = Annotated[str, Meta(pattern=r"^[A-Z]{2}$")]
Place = Annotated[str, Meta(min_length=1, max_length=255)]


class SearchLocation(Struct, frozen=True, kw_only=True):
    type: Literal["approximate"]
    city: Place | None = None
    country: Country | None = None
    region: Place | None = None
    timezone: Place | None = None


class ToolReference(Struct, frozen=True, kw_only=True):
    name: str
    type: Literal["tool_reference"]


References = Annotated[tuple[ToolReference, ...], Meta(min_length=1, max_length=128)]


class AllSources(Struct, frozen=True, kw_only=True, tag_field="type", tag="all"):
    pass


class NoSources(Struct, frozen=True, kw_only=True, tag_field="type", tag="none"):
    pass


class OnlyTools(Struct, frozen=True, kw_only=True, tag_field="type", tag="only"):
    tools: References


class ExceptTools(Struct, frozen=True, kw_only=True, tag_field="type", tag="except"):
    tools: References


Shorthand: TypeAlias = Literal["all", "none"]
SourceFilter: TypeAlias = AllSources | NoSources | OnlyTools | ExceptTools


class UrlSources(Struct, frozen=True, kw_only=True):
    """Which sources contribute URLs that may be fetched; `null`: all URLs of that source."""

    client_tool_results: SourceFilter | None = None
    server_tool_results: SourceFilter | None = None
    user_input: AllSources | NoSources | None = None


class UrlSourcesParams(Struct, frozen=True, kw_only=True):
    client_tool_results: Shorthand | SourceFilter | None = None
    server_tool_results: Shorthand | SourceFilter | None = None
    user_input: Shorthand | AllSources | NoSources | None = None


def resolve_url_sources(params: UrlSourcesParams) -> UrlSources:
    return UrlSources(
        client_tool_results=_filter(params.client_tool_results),
        server_tool_results=_filter(params.server_tool_results),
        user_input=_filter(params.user_input),
    )


def _filter(params: Shorthand | T) -> AllSources | NoSources | T:
    match params:
        case "all":
            return AllSources()
        case "none":
            return NoSources()
        case _:
            return params


def check_url_sources(sources: UrlSources, where: str, *, custom: Iterable[str]) -> None:
    """Raises: InvalidInput: nothing could be fetched, or a list names an unknown tool."""
    filters = (sources.client_tool_results, sources.server_tool_results, sources.user_input)
    if all(isinstance(source, NoSources) for source in filters):
        raise InvalidInput(f"{where}: without a source, nothing can be fetched; disable the tool")
    _check_names(
        sources.client_tool_results, f"{where}.client_tool_results", custom, "a custom tool"
    )
    _check_names(
        sources.server_tool_results,
        f"{where}.server_tool_results",
        ("web_search", "web_fetch"),
        "web_search or web_fetch",
    )


def _check_names(
    source: SourceFilter | None, where: str, current: Iterable[str], words: str
) -> None:
    if not isinstance(source, OnlyTools | ExceptTools):
        return
    names = [tool.name for tool in source.tools]
    if len(set(names)) < len(names):
        raise InvalidInput(f"{where}.tools: must not name a tool twice")
    for name in names:
        if name not in current:
            raise InvalidInput(f"{where}.tools: {name} is not {words} of this agent")


_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = rf"(?:{_LABEL}\.)*{_LABEL}"
_FETCH_DOMAIN = re.compile(_HOST)
_SEARCH_DOMAIN = re.compile(_HOST + r"(?:/[!-~]*)?")


def check_domains(domains: Iterable[str], where: str, *, with_path: bool) -> None:
    """Raises: InvalidInput."""
    for index, domain in enumerate(domains):
        if len(domain) > 253 or not (_SEARCH_DOMAIN if with_path else _FETCH_DOMAIN).fullmatch(
            domain
        ):
            raise InvalidInput(
                f"{where}[{index}]: must be a plain host name such as docs.example.com"
            )
