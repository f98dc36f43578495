"""x."""
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    start: int | None
    model: str | None
    prompt: str | None
    json: bool
async def replay(settings, *, meant, options): return 1
async def record(settings, *, meant, output): return 1
