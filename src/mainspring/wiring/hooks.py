"""The hooks of a session: read from what its settings say, and made ready to be asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mainspring.capabilities.hooks.ask import Ports
from mainspring.capabilities.hooks.command import Surroundings
from mainspring.capabilities.hooks.config import HookConfig, Scope, parse_hooks
from mainspring.capabilities.hooks.runner import HookRunner
from mainspring.capabilities.hooks.runner import Policy as HookPolicy
from mainspring.capabilities.hooks.runner import Session as HookSession
from mainspring.capabilities.hooks.scripts import Scripts
from mainspring.config import Settings
from mainspring.core.envelope import KnownPayload
from mainspring.core.latest import Latest
from mainspring.core.tool import Traits
from mainspring.harness.gatekeeper import Gatekeeper
from mainspring.harness.permissions.judged import after, judged_call
from mainspring.harness.permissions.names import ALIASES
from mainspring.harness.permissions.policy import HeldRule
from mainspring.harness.permissions.rules import forbids, parse_rule
from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
from mainspring.runtime.kit import Opening
from mainspring.wiring.adopted import Adopted
from mainspring.wiring.policies import HookSettings
from mainspring.wiring.verdicts import Asked

_TRUSTED: tuple[Scope, ...] = ("managed", "user")
_OWN: tuple[Scope, ...] = ("project", "local")


def read_hooks(said: Iterable[HookSettings]) -> tuple[tuple[msgspec.Raw, ...], tuple[str, ...]]:
    """As the log keeps them, and what is odd about them.

    Raises:
        InvalidInput: they cannot be understood.
    """
    configs = [
        parse_hooks({"hooks": each.hooks}, scope=each.scope, source=each.source)
        for each in said
        if each.scope != "session"
    ]
    kept = tuple(msgspec.Raw(msgspec.json.encode(config)) for config in configs)
    return kept, tuple(warning for config in configs for warning in config.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPorts:
    """What hooks of one thread reach."""

    ask: Asked
    overheard: list[KnownPayload]
    """Gets what the models cost that hooks ask."""
    transcripts: Latest[str, TranscriptFiles]
    """Of the sessions that ran before in this process: they know what is written."""
    folder: Path
    """Where transcripts are."""
    warn: Callable[[str], None]


@asynccontextmanager
async def running_hooks(
    settings: Settings, adopted: Adopted, opening: Opening, gates: Gatekeeper, ports: HookPorts
) -> AsyncGenerator[HookRunner, None]:
    """Hooks that can be asked, and a transcript for them to read, until the block ends."""
    transcript = _transcript(opening, ports)
    runner = hook_runner(settings, adopted, opening, gates, ports, transcript)
    async with AsyncExitStack() as stack:
        if runner.has_hooks and opening.subagent is None:
            await stack.enter_async_context(transcript.kept())
        yield await stack.enter_async_context(runner)


def _transcript(opening: Opening, ports: HookPorts) -> TranscriptFiles:
    session_id = opening.writer.session_id
    if (known := ports.transcripts.get(session_id)) is not None:
        return known
    made = TranscriptFiles(
        opening.log,
        ports.folder,
        session_id=session_id,
        main_thread=opening.writer.thread_id,
        warn=ports.warn,
    )
    ports.transcripts.put(session_id, made)
    return made


def hook_runner(
    settings: Settings,
    adopted: Adopted,
    opening: Opening,
    gates: Gatekeeper,
    ports: HookPorts,
    transcript: TranscriptFiles,
) -> HookRunner:
    """Runs those that come from a trusted place; enter it before it is asked anything."""
    agent = opening.subagent

    def told() -> Mapping[str, object]:
        about = {
            "session_id": opening.writer.session_id,
            "transcript_path": transcript.path(opening.writer.thread_id),
            "cwd": adopted.policy.workspace,
            "permission_mode": gates.mode,
        }
        if agent is None:
            return about
        thread_id = opening.thread.id
        return {
            **about,
            "agent_id": thread_id,
            "agent_type": agent,
            "agent_transcript_path": transcript.path(thread_id),
        }

    async def prepare() -> None:
        await transcript.update(opening.writer.staged)

    def matches_rule(text: str, tool: str, given: Mapping[str, object]) -> bool:
        place = after(gates.thread.gear.commands, gates.place())
        judged = judged_call(tool, given, Traits(), place)
        roots = adopted.policy.roots(HeldRule(text=text, behavior="ask"))
        return forbids(parse_rule(text), judged, roots, "ask")

    async def answer(prompt: str, _model: str | None) -> str:
        said, facts = await ports.ask(
            "Answer with the JSON that is asked for, and nothing else.", prompt
        )
        ports.overheard.extend(facts)
        return said

    return HookRunner(
        tuple(msgspec.json.decode(each, type=HookConfig) for each in adopted.hooks),
        HookSession(told=told, matches_rule=matches_rule, prepare=prepare),
        Ports(
            surroundings=Surroundings(
                project=Path(adopted.policy.workspace),
                environment=settings.environment,
                scripts=Scripts(
                    roots=adopted.hook_roots or (adopted.policy.workspace,),
                    files=adopted.hook_files,
                ),
            ),
            ask=answer,
        ),
        policy=HookPolicy(
            trusted=frozenset((*_TRUSTED, *_OWN) if adopted.is_trusted else _TRUSTED),
            fail_open=bool(adopted.policy.hooks_fail_open),
            aliases=ALIASES,
        ),
    )
