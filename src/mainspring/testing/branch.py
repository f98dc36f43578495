"""A branch of a recorded session: another model or another prompt, run live in a fork.

Tools and hooks do not run. A tool returns its recorded result, or says that the call was not
recorded. Recorded effects of hooks on messages are repeated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import ContextAdded
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.state.thread import Thread, fold
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.agent import Agent
from mainspring.runtime.replay.recording import read_recording
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session.xrays import read_shots
from mainspring.runtime.session_context import SetupRequest
from mainspring.testing.replay import last_step_boundary
from mainspring.testing.replay_doubles import recorded_result_tools

_BUILT_IN = ("history_search", "history_read")
"""Tools that every session has itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChange:
    """What differs from the recording."""

    model: str | None = None
    """`None`: the recorded model."""
    prompt: str | None = None
    """Replaces the first message after `start`."""
    start: int | None = None
    """Events up to this one are as recorded; `None`: those before the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBranch:
    session: Session
    """The fork."""
    at: int
    is_open: bool
    """Whether there is work to do before the next message."""
    messages: tuple[str, ...]
    """The messages to send, one after the other."""


async def branch(runtime: Runtime, session_id: str, branch_change: BranchChange) -> SessionBranch:
    """
    Raises:
        SessionNotFound.
        InvalidInput: the session has not called a model.
    """
    session = await runtime.log.session(session_id)
    log = await runtime.log.read(session_id)
    shots = await read_shots(runtime.log, session)
    if not shots:
        raise InvalidInput(f"session {session_id} has not called a model")
    at = _start(log, session.thread_id, branch_change.start)
    recording = read_recording(log, thread_id=session.thread_id, model_calls=shots)
    prompts = [
        plain_text(event.payload.content)
        for event in log
        if event.seq > at
        and isinstance(event.payload, events.UserMessage)
        and event.id not in recording.withheld
    ]
    if branch_change.prompt is not None:
        prompts = [branch_change.prompt, *prompts[1:]]
    request = next((shot.request for shot in shots if shot.started.seq > at), shots[-1].request)
    specs = [spec for spec in recording.specs() if spec.name not in _BUILT_IN]
    model = runtime.models.resolve(branch_change.model or request.model)
    agent = Agent(model=model, tools=recorded_result_tools(recording, specs))
    prefix = PromptPrefix(
        model=agent.model, system=request.system, tools=request.tools, effort=request.effort
    )
    runtime.models.open(agent.model)
    forked = await runtime.log.fork(session_id, at=at, title=f"replay with {agent.model}")
    thread = fold(log[:at], thread_id=session.thread_id)
    hooks = _RecordedHooks(log)

    @asynccontextmanager
    async def toolbox_factory(_: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        # the recorded prefix, even if the agent would build another one now
        yield Toolbox(authorizer=hooks, prompt_prefix=prefix)

    replaying = Runtime(
        runtime.log,
        runtime.models,
        toolbox_factory=toolbox_factory,
        options=replace(runtime.options, ignores_pinned_agent=True),
        budget=runtime.budget,
        sender=runtime.sender,
    )
    return SessionBranch(
        session=Session(replaying, agent, forked.id),
        at=at,
        is_open=branch_change.prompt is None and (thread.running or not thread.is_answered),
        messages=tuple(prompts),
    )


def _start(log: list[Event], thread_id: str, start: int | None) -> int:
    if start is not None:
        return last_step_boundary(log, thread_id, start)
    first = next((event.seq for event in log if isinstance(event.payload, events.UserMessage)), 2)
    return max(1, first - 1)


class _RecordedHooks(AllowAll):
    """Adds to each message the context that hooks added in the recording."""

    def __init__(self, log: Sequence[Event]) -> None:
        self._added: dict[str, list[str]] = {}
        prompt = ""
        for event in log:
            match event.payload:
                case events.UserMessage(content=content):
                    prompt = plain_text(content)
                    self._added[prompt] = []
                case ContextAdded(text=text, source="UserPromptSubmit hook"):
                    self._added.setdefault(prompt, []).append(text)
                case _:
                    pass

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        if hook_event.event != "UserPromptSubmit":
            return EMPTY_HOOK_RESULT
        return HookResult(context=tuple(self._added.get(str(hook_event.fields["prompt"]), ())))
