"""Room for the next request: when to compact, how far, and the proof that it did no harm.

The layers propose; an overlay is recorded only after a trial on a copy has shown that the messages
are well formed, smaller, and hold every pinned block byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mainspring.core.catalog import ModelFacts
from mainspring.core.events import CompactionRequested, ContextCompacted
from mainspring.harness import occasions
from mainspring.harness.context.kept_skills import skills_again
from mainspring.harness.context.layers import (
    Sheet,
    collapse,
    drop_media,
    limit_results,
    micro,
    snip,
)
from mainspring.harness.context.overlay import is_media
from mainspring.harness.context.summary import is_worth_it, summarize
from mainspring.harness.context.transcript import Transcript
from mainspring.harness.context.validity import fault, missing
from mainspring.harness.desk import Desk
from mainspring.harness.reasons import Continue, Ended, Step

_ROUNDS_KEPT = 4
_REACTIVE_TRIES = 2


@dataclass(frozen=True, slots=True)
class Room:
    """Input tokens: from where on to compact, how far down, and what is never sent."""

    trigger: int
    goal: int
    """Well below the trigger: every compaction costs the prompt cache."""
    stop: int
    results: int
    """What the results of one round may take together."""


def room(facts: ModelFacts) -> Room:
    """13k and 3k below the window's end; in small windows, a quarter and a tenth of them.

    What is left above the trigger is for the reply.
    """
    trigger = facts.window - min(13_000, facts.window // 4)
    return Room(
        trigger=trigger,
        goal=trigger * 2 // 3,
        stop=facts.window - min(3_000, facts.window // 10),
        results=min(50_000, facts.window // 4),
    )


async def make_room(desk: Desk) -> Step | None:
    """Compact what has to go before the next request. `None`: nothing had to."""
    limits = room(desk.facts)
    work = _Compaction(desk)
    await work.limit_results(limits.results)
    is_over = desk.input_tokens() > limits.trigger
    if is_over:
        await work.run(goal=limits.goal, rounds=_ROUNDS_KEPT)
        await work.summarize(goal=limits.goal, rounds=_ROUNDS_KEPT)
    if desk.input_tokens() > limits.stop and not work.is_interrupted:
        await work.run_harder(goal=limits.goal, results=limits.results // 2)
    if work.has_changed:
        await desk.ask_hooks(occasions.after_compact())
    if work.has_changed and is_over:
        _bring_back(desk)
    if work.is_interrupted:
        return Continue("compacted_retry")  # the loop hears of it before it goes on
    if (tokens := desk.input_tokens()) > limits.stop:
        return Ended(
            "prompt_too_long",
            f"{tokens} tokens with all that could be compacted; the window is {desk.facts.window}",
        )
    return Continue("compacted_retry") if work.has_changed else None


async def compact(desk: Desk, wanted: CompactionRequested) -> Step:
    """Somebody has asked for it: a summary of all but the newest round or, if there is none to be
    had, what the other layers can do."""
    work = _Compaction(desk, wanted)
    await work.summarize(goal=0, rounds=1)
    if not work.has_changed and not work.is_interrupted:
        await work.run(goal=desk.input_tokens() // 3, rounds=1)
    if work.has_changed:
        await desk.ask_hooks(occasions.after_compact(wanted))
        _bring_back(desk)
    if desk.thread.is_answered and not work.is_interrupted:
        return Ended("compacted")
    return Continue("compacted_retry")


def _bring_back(desk: Desk) -> None:
    """Skills that are in use; at most half of what is left, or the next compaction would be due."""
    left = room(desk.facts).trigger - desk.input_tokens()
    desk.note(*skills_again(desk, max_tokens=left // 2))


async def shrink(desk: Desk, *, media: bool) -> bool:
    """The provider has refused the request as too large. False: nothing more can be done."""
    tries = desk.thread.tries.compacted
    if tries >= _REACTIVE_TRIES:
        return False
    work = _Compaction(desk)
    tokens = desk.input_tokens()
    if media:
        await work.drop_media(with_newest=tries > 0)
        return work.has_changed
    if tries == 0:
        await work.run(goal=tokens * 3 // 5, rounds=_ROUNDS_KEPT)
    if not work.has_changed:
        await work.run_harder(goal=tokens // 3, results=room(desk.facts).results // 2)
    return work.has_changed


class _Compaction:
    """One pass over a desk's conversation. Gates hear of it before its first change."""

    def __init__(self, desk: Desk, wanted: CompactionRequested | None = None) -> None:
        self.has_changed = False
        self.is_interrupted = False
        self._desk = desk
        self._wanted = wanted
        self._is_announced = False
        self._is_blocked = False
        self._is_urgent = False

    async def limit_results(self, max_tokens: int) -> None:
        transcript = self._desk.thread.transcript
        max_bytes = int(max_tokens * self._desk.facts.bytes_per_token)
        self._record(limit_results(transcript, max_bytes))  # unseen yet: nothing to announce

    async def run(self, *, goal: int, rounds: int) -> None:
        for layer in (snip, micro, collapse):
            if (sheet := self._sheet(goal, rounds)) is None:
                return
            overlays = layer(sheet)
            if overlays and await self._may_go_on():
                self._record(overlays)

    async def summarize(self, *, goal: int, rounds: int) -> None:
        sheet = self._sheet(goal, rounds)
        if sheet is None or not is_worth_it(self._desk, sheet, is_wanted=self._wanted is not None):
            return
        if not await self._may_go_on():
            return
        keep = None if self._wanted is None else self._wanted.instructions
        overlays = await summarize(self._desk, sheet, keep=keep)
        self.is_interrupted = overlays is None
        self._record(overlays or ())

    async def run_harder(self, *, goal: int, results: int) -> None:
        """Keep the newest round only, and of its results less. Whatever hooks say: without it the
        session ends here."""
        self._is_urgent = True
        await self.run(goal=goal, rounds=1)
        await self.summarize(goal=goal, rounds=1)
        if self._sheet(goal, 1) is not None and await self._may_go_on():
            await self.limit_results(results)

    async def drop_media(self, *, with_newest: bool) -> None:
        sheet = Sheet(self._desk.thread.transcript, 0, _ROUNDS_KEPT, self._desk.facts.window)
        overlays = drop_media(sheet, with_newest=with_newest)
        if not overlays:
            overlays = drop_media(sheet, with_newest=True)
        self._is_urgent = True
        if overlays and await self._may_go_on():
            self._record(overlays)

    def _sheet(self, goal: int, rounds: int) -> Sheet | None:
        """None: the goal is reached."""
        desk = self._desk
        tokens = desk.input_tokens()
        if tokens <= goal:
            return None
        total = desk.prefix.size + desk.thread.transcript.bytes
        return Sheet(
            desk.thread.transcript,
            excess_bytes=total * (tokens - goal) // tokens + 1,
            rounds=rounds,
            recent_bytes=int(goal * desk.facts.bytes_per_token / 2),
        )

    async def _may_go_on(self) -> bool:
        """Gates and hooks hear of it once, before the first change; a hook may say no to what can
        wait."""
        if not self._is_announced:
            self._is_announced = True
            ruling = await self._desk.ask_hooks(
                occasions.before_compact(self._wanted), is_context=False
            )
            self._is_blocked = ruling.blocked
            await self._desk.gates.before_compact(self._desk.thread)
        return self._is_urgent or not self._is_blocked

    def _record(self, overlays: Sequence[ContextCompacted]) -> None:
        """All of them, with what each frees, or none."""
        if not overlays:
            return
        desk = self._desk
        trial = desk.thread.transcript.copy()
        tokens = _tokens(desk, trial)
        proven: list[ContextCompacted] = []
        for overlay in overlays:
            trial.compact(overlay)
            before, tokens = tokens, _tokens(desk, trial)
            proven.append(msgspec.structs.replace(overlay, freed_tokens=before - tokens))
        if is_harmless(desk.thread.transcript, trial):
            desk.note(*proven)
            self.has_changed = True


def is_harmless(before: Transcript, after: Transcript) -> bool:
    """Smaller, well formed, and every pinned word still there."""
    messages = after.upcoming()
    pinned = [block for block in before.pins.blocks() if not is_media(block)]
    return after.bytes < before.bytes and fault(messages) is None and not missing(pinned, messages)


def _tokens(desk: Desk, transcript: Transcript) -> int:
    return transcript.tokens(
        prefix_bytes=desk.prefix.size, bytes_per_token=desk.facts.bytes_per_token
    )
