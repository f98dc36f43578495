"""How a session reaches MCP servers, and as whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mainspring.capabilities.mcp.server_auth import BearerToken, Learn, ServerAuth, StaticHeaders
from mainspring.capabilities.mcp.server_requests import Sample
from mainspring.capabilities.mcp.stored_rounds import OpenSeal
from mainspring.capabilities.mcp.traced_transport import Trace
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.events import KnownPayload
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.tool_pins import is_known_legacy
from mainspring.wiring import mcp_auth
from mainspring.wiring.mcp_sampling import make_sample
from mainspring.wiring.user_vault import open_seal


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    scrub: Scrubber
    """Learns what servers are given: they may repeat it."""
    home: Path | None
    """The user's, where the definitions of tools are pinned; `None`: they are not."""
    authenticate: Callable[[McpServer, Learn], ServerAuth]
    networks: tuple[Network, ...] | None = None
    """Addresses that are no public ones and may be reached all the same; `None`: all."""
    trace: Trace | None = None
    """Shows every message."""
    open_seal: OpenSeal | None = None
    """Seals what servers leave with a call for the time until a person has answered."""
    make_sample: Callable[[Callable[[Iterable[KnownPayload]], None]], Sample] | None = None
    """Asks the session's model for servers that may do that; it is given where costs go."""

    def is_legacy(self, server: McpServer) -> bool:
        return self.home is not None and is_known_legacy(self.home, server, clock.now())


def session_access(
    setup: SetupRequest, settings: Settings, networks: tuple[Network, ...], models: Models
) -> ServerAccess:
    scrub, options = setup.log.scrub, setup.options
    scrub = scrub if isinstance(scrub, Scrubber) else Scrubber({})
    seal = partial(open_seal, settings)
    if not options.is_served:
        home, authenticate = Path(settings.home), partial(mcp_auth.server_auth, settings)
        sample = partial(make_sample, models, setup.agent.model)
        return ServerAccess(
            scrub=scrub,
            home=home,
            authenticate=authenticate,
            open_seal=seal,
            make_sample=sample,
        )

    def authenticate(server: McpServer, learn: Learn) -> ServerAuth:
        get = options.server_token
        return BearerToken(partial(get, server.url), learn) if get else StaticHeaders({})

    return ServerAccess(
        scrub=scrub, home=None, networks=networks, authenticate=authenticate, open_seal=seal
    )
