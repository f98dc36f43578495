"""When to compact the conversation, how far, and the check that nothing was lost. The layers
propose overlays; one is recorded only after a trial on a copy. Skills in use are restored
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from mainspring.core.content import Block, TextBlock
from mainspring.core.events import CompactionRequested, ContextAdded, ContextCompacted
from mainspring.core.model import Assistant, ToolResultBlock
from mainspring.harness import hook_events
from mainspring.harness.context.compaction_layers import (
    CompactionInput,
    collapse_rounds,
    drop_finished_tasks,
    drop_media,
    drop_old_results,
    limit_results,
)
from mainspring.harness.context.messages import is_media, message_order_error, missing_pins
from mainspring.harness.context.summary import is_worth_it, summarize
from mainspring.harness.context.transcript import Transcript
from mainspring.harness.context.working_state import (
    WORKING_STATE,
    WorkingState,
    extract_state,
    parse_state,
)
from mainspring.harness.stop_reasons import Continue, Ended, Step
from mainspring.harness.thread_context import ThreadContext

MAX_SKILL_TOKENS = 25_000  # of all skills kept; five of full length
_MAX_SKILL_CHARS = 20_000
"""The limit for each skill, about 5,000 tokens."""
# A replay compares requests with this text, so changing it breaks the replay of old logs.
_RESTORED_SKILL_NOTE = (
    "The text of a skill that you use, which was taken out of this conversation to save space:"
)


def restored_skills(context: ThreadContext, *, max_tokens: int) -> list[ContextAdded]:
    """Skills that compaction removed from the context, the newest first, as far as they fit."""
    room = min(max_tokens, MAX_SKILL_TOKENS) * context.facts.bytes_per_token
    texts = list(_visible_texts(context)) if context.thread.session_state.skill_texts else []
    restored: list[ContextAdded] = []
    for name, full_text in reversed(context.thread.session_state.skill_texts.items()):
        text = full_text[:_MAX_SKILL_CHARS]
        room -= len(text.encode())
        if room < 0:
            break
        if not any(text in item for item in texts):
            restored.append(
                ContextAdded(text=f"{_RESTORED_SKILL_NOTE}\n{text}", source=f"skill {name}")
            )
    return restored


def _visible_texts(context: ThreadContext) -> Iterator[str]:
    """The text of the next request without the model's own messages."""
    transcript = context.thread.transcript
    parts: list[Block | ToolResultBlock] = [*transcript.open_results, *transcript.open_words]
    for message in transcript.messages:
        if not isinstance(message, Assistant):
            parts += message.content
    for part in parts:
        for block in part.content if isinstance(part, ToolResultBlock) else (part,):
            if isinstance(block, TextBlock):
                yield block.text


_KEPT_ROUNDS = 4  # the newest rounds, which stay whole: what the model works on now
_MAX_STATE_BYTES = 4_000  # about 1,000 tokens of every later request
_REACTIVE_TRIES = 2  # after a refusal for length: first as usual, then harder


class CompactionThresholds(Struct, frozen=True):
    """Thresholds in input tokens: when to compact, the target, and the hard limit."""

    trigger: int
    goal: int
    """Well below the trigger: every compaction costs the prompt cache."""
    stop: int
    results: int
    """The limit for all results of one round."""


def thresholds_of(context: ThreadContext) -> CompactionThresholds:
    """13k and 3k tokens below the context window; in small windows, a quarter and a tenth of it.
    The smallest `max_context` and `compact_at` of the limits lower both.

    The room above the trigger is for the reply.
    """
    limits = [tier.limits for tier in context.tiers]
    window = min([context.facts.window, *(item.max_context for item in limits if item.max_context)])
    shares = [item.compact_at for item in limits if item.compact_at is not None]
    trigger = min([window - min(13_000, window // 4), *(int(window * share) for share in shares)])
    return CompactionThresholds(
        trigger=trigger,
        goal=trigger * 2 // 3,
        stop=window - min(3_000, window // 10),
        results=min(50_000, window // 4),
    )


async def compact_if_needed(context: ThreadContext) -> Step | None:
    """Compact the conversation if the next request needs it. `None`: it did not."""
    limits = thresholds_of(context)
    work = _Compaction(context)
    await work.limit_results(limits.results)
    is_over = context.input_tokens() > limits.trigger
    if is_over:
        await work.run(goal=limits.goal, rounds=_KEPT_ROUNDS)
        await work.summarize(goal=limits.goal, rounds=_KEPT_ROUNDS)
    if context.input_tokens() > limits.stop and not work.is_interrupted:
        await work.run_harder(goal=limits.goal, results=limits.results // 2)
    if work.has_changed:
        await context.run_hooks(hook_events.after_compact())
    if work.has_changed and is_over:
        _restore_skills(context)
    if work.is_interrupted:
        return Continue("compacted_retry")  # the loop handles the interrupt first
    if (tokens := context.input_tokens()) > limits.stop:
        return Ended(
            "prompt_too_long",
            f"{tokens} tokens after compaction; at most {limits.stop} can be sent",
        )
    return Continue("compacted_retry") if work.has_changed else None


async def compact_on_request(context: ThreadContext, request: CompactionRequested) -> Step:
    """Compact on request: summarize all but the newest round or, if that fails, free what the other
    layers can."""
    work = _Compaction(context, request)
    await work.summarize(goal=0, rounds=1)
    if not work.has_changed and not work.is_interrupted:
        await work.run(goal=context.input_tokens() // 3, rounds=1)
    if work.has_changed:
        await context.run_hooks(hook_events.after_compact(request))
        _restore_skills(context)
    if context.thread.is_answered and not work.is_interrupted:
        return Ended("compacted")
    return Continue("compacted_retry")


def _restore_skills(context: ThreadContext) -> None:
    """Restore skills in use, in at most half of the free room, to avoid another compaction soon."""
    room = thresholds_of(context).trigger - context.input_tokens()
    context.note(*restored_skills(context, max_tokens=room // 2))


async def compact_after_overflow(context: ThreadContext, *, media: bool) -> bool:
    """Compact after the provider rejected a request as too large. False: nothing left to free."""
    tries = context.thread.retries.compacted
    if tries >= _REACTIVE_TRIES:
        return False
    work = _Compaction(context)
    tokens = context.input_tokens()
    if media:
        await work.drop_media(with_newest=tries > 0)
        return work.has_changed
    if tries == 0:
        await work.run(goal=tokens * 3 // 5, rounds=_KEPT_ROUNDS)
    if not work.has_changed:
        await work.run_harder(goal=tokens // 3, results=thresholds_of(context).results // 2)
    return work.has_changed


class _Compaction(Struct):
    """One compaction of a thread's conversation. Hooks run before its first change."""

    context: ThreadContext
    request: CompactionRequested | None = None
    has_changed: bool = False
    is_interrupted: bool = False
    _is_announced: bool = False
    _is_blocked: bool = False
    _is_urgent: bool = False

    async def limit_results(self, max_tokens: int) -> None:
        transcript = self.context.thread.transcript
        max_bytes = int(max_tokens * self.context.facts.bytes_per_token)
        if overlays := limit_results(transcript, max_bytes):
            self._record(overlays)  # the model has not seen these yet: no hooks

    async def run(self, *, goal: int, rounds: int) -> None:
        for layer in (drop_finished_tasks, drop_old_results, collapse_rounds):
            if (source := self._input(goal, rounds)) is None:
                return
            overlays = layer(source)
            if overlays and await self._may_change():
                await self._save_state(self._state())
                self._record(overlays)

    async def summarize(self, *, goal: int, rounds: int) -> None:
        source = self._input(goal, rounds)
        is_requested = self.request is not None
        if source is None or not is_worth_it(self.context, source, is_requested=is_requested):
            return
        if not await self._may_change():
            return
        keep = None if self.request is None else self.request.instructions
        summary = await summarize(self.context, source, state=self._state(), keep=keep)
        self.is_interrupted = summary is None
        if summary is not None and summary.overlays:
            is_corrected = summary.state is not None
            await self._save_state(summary.state or self._state(), is_corrected=is_corrected)
            self._record(summary.overlays)

    async def run_harder(self, *, goal: int, results: int) -> None:
        """Keep only the newest round, with shorter results. Hooks cannot prevent it: without it,
        the session would end here."""
        self._is_urgent = True
        await self.run(goal=goal, rounds=1)
        await self.summarize(goal=goal, rounds=1)
        if self._input(goal, 1) is not None and await self._may_change():
            await self.limit_results(results)

    async def drop_media(self, *, with_newest: bool) -> None:
        source = CompactionInput(
            self.context.thread.transcript, 0, _KEPT_ROUNDS, self.context.facts.window
        )
        overlays = drop_media(source, with_newest=with_newest)
        if not overlays:
            overlays = drop_media(source, with_newest=True)
        self._is_urgent = True
        if overlays and await self._may_change():
            self._record(overlays)

    def _input(self, goal: int, rounds: int) -> CompactionInput | None:
        """The input for the layers; `None` if the goal is reached."""
        context = self.context
        tokens = context.input_tokens()
        if tokens <= goal:
            return None
        total = len(context.prompt_prefix.encoded) + context.thread.transcript.bytes
        return CompactionInput(
            context.thread.transcript,
            excess_bytes=total * (tokens - goal) // tokens + 1,
            rounds=rounds,
            recent_bytes=int(goal * context.facts.bytes_per_token / 2),
        )

    async def _may_change(self) -> bool:
        """Run hooks once, before the first change; a hook may refuse a compaction that can wait."""
        if not self._is_announced:
            self._is_announced = True
            hook_result = await self.context.run_hooks(
                hook_events.before_compact(self.request), is_context=False
            )
            self._is_blocked = hook_result.blocked
            await self.context.toolbox.authorizer.before_compact(self.context.thread)
        return self._is_urgent or not self._is_blocked

    def _state(self) -> WorkingState:
        thread = self.context.thread
        previous, _ = parse_state(thread.saved_state.text)
        return extract_state(thread.transcript, thread.tasks, previous)

    async def _save_state(self, state: WorkingState, *, is_corrected: bool = False) -> None:
        """Save the working state before messages are removed: once, even across a crash, unless a
        summary has corrected it. Facts that outlive the session go to memory."""
        context, thread = self.context, self.context.thread
        max_bytes = min(
            _MAX_STATE_BYTES, int(context.facts.window * context.facts.bytes_per_token) // 20
        )
        text = state.text(max_bytes)
        saved = thread.saved_state
        is_saved = (saved.turns, saved.messages) == (thread.turns, thread.messages)
        if not is_corrected and (is_saved or text == saved.text):
            return
        if (save := context.toolbox.before_compact) is not None:
            context.note(*await save(thread.transcript.pins.goal, text))
        if text:
            context.note(ContextAdded(text=text, source=WORKING_STATE))

    def _record(self, overlays: Sequence[ContextCompacted]) -> None:
        """Apply all overlays, with what each frees, or none."""
        context = self.context
        trial = context.thread.transcript.copy()
        tokens = context.input_tokens(trial)
        measured: list[ContextCompacted] = []
        for overlay in overlays:
            trial.compact(overlay)
            before, tokens = tokens, context.input_tokens(trial)
            measured.append(msgspec.structs.replace(overlay, freed_tokens=before - tokens))
        if is_harmless(context.thread.transcript, trial):
            context.note(*measured)
            self.has_changed = True


def is_harmless(before: Transcript, after: Transcript) -> bool:
    """Whether the result is smaller, well formed, and has every pinned text."""
    messages = after.upcoming()
    pinned = [block for block in before.pins.blocks() if not is_media(block)]
    return (
        after.bytes < before.bytes
        and message_order_error(messages) is None
        and not missing_pins(pinned, messages)
    )
