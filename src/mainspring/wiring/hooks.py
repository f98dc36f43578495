"""The hooks of a session: read from what its settings say, and made ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from mainspring.core.tool import Traits
from mainspring.harness.gatekeeper import Gatekeeper
from mainspring.harness.permissions.judged import after, judged_call
from mainspring.harness.permissions.names import ALIASES
from mainspring.harness.permissions.policy import HeldRule
from mainspring.harness.permissions.rules import forbids, parse_rule
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


def hook_runner(
    settings: Settings,
    adopted: Adopted,
    opening: Opening,
    gates: Gatekeeper,
    ask: Asked,
    overheard: list[KnownPayload],
) -> HookRunner:
    """Runs those that come from a trusted place; enter it before it is asked anything.

    What models cost that hooks ask is `overheard`.
    """

    agent = opening.subagent
    about = {} if agent is None else {"agent_id": opening.thread.id, "agent_type": agent}

    def told() -> Mapping[str, object]:
        return {
            "session_id": opening.writer.session_id,
            "transcript_path": "",
            "cwd": adopted.policy.workspace,
            "permission_mode": gates.mode,
            **about,
        }

    def matches_rule(text: str, tool: str, given: Mapping[str, object]) -> bool:
        place = after(gates.thread.gear.commands, gates.place())
        judged = judged_call(tool, given, Traits(), place)
        roots = adopted.policy.roots(HeldRule(text=text, behavior="ask"))
        return forbids(parse_rule(text), judged, roots, "ask")

    async def answer(prompt: str, _model: str | None) -> str:
        said, facts = await ask("Answer with the JSON that is asked for, and nothing else.", prompt)
        overheard.extend(facts)
        return said

    return HookRunner(
        tuple(msgspec.json.decode(each, type=HookConfig) for each in adopted.hooks),
        HookSession(told=told, matches_rule=matches_rule),
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
