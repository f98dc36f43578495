"""One file of the web that the user of this machine names; their proxy settings apply."""

from __future__ import annotations

import aiohttp

from mainspring.core.errors import NetworkRefused, TooLarge

_SECONDS = 60.0


async def download(url: str, *, max_bytes: int) -> bytes:
    """Raises: NetworkRefused, TooLarge."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(url) as response,
        ):
            if response.status != 200:
                raise NetworkRefused(f"{url}: the server answered {response.status}")
            content = await response.content.read(max_bytes + 1)
            while len(content) <= max_bytes and (piece := await response.content.read(max_bytes)):
                content += piece
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise NetworkRefused(f"{url}: no answer ({type(error).__name__}: {error})") from error
    if len(content) > max_bytes:
        raise TooLarge(f"{url}: more than {max_bytes:,} bytes")
    return content
