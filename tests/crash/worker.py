"""One of a child's tasks: random operations on the log, drawn from a seeded source."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TypeVar

import anyio
from tests.crash import wire
from tests.crash.reporter import Reporter
from tests.senders import TESTER

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event, encode_payload
from mainspring.core.errors import LogError
from mainspring.core.events import AgentMessage, SessionCreated, SessionForked, UserMessage
from mainspring.log.blobs import digest_of
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.log.writer import Writer

T = TypeVar("T")

_OWNERS = ("ada", "bob", "cyd")
_LONG_SECONDS = 20.0
_FOLLOW_SECONDS = 30.0


@dataclass(slots=True)
class Shared:
    """What the tasks of one child have in common."""

    reporter: Reporter
    sessions: list[str]
    is_repeatable: bool
    """Do the same things each time: no lease may run out in between."""
    own: list[str] = field(default_factory=list[str])
    """Sessions made in this life: only these are deleted, so that others can rely on the rest."""


class _Ids:
    """Ids that are known before the call that uses them, so that they can be announced."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._numbers = count(1)
        self._reserved: dict[str, str] = {}

    def fresh(self, prefix: str) -> str:
        return f"{prefix}_{self._tag}n{next(self._numbers)}"

    def reserve(self, prefix: str) -> str:
        self._reserved[prefix] = self.fresh(prefix)
        return self._reserved[prefix]

    def new(self, prefix: str) -> str:
        return self._reserved.pop(prefix, None) or self.fresh(prefix)


class Worker:
    def __init__(self, store: Store, shared: Shared, random: Random, tag: str) -> None:
        self._shared = shared
        self._random = random
        self._ids = _Ids(tag)
        self._log = SessionLog(store, new_id=self._ids.new)
        self._writers: dict[str, Writer] = {}
        self._sent: list[wire.Submit] = []

    async def work(self, operations: int) -> None:
        choices: list[tuple[int, Callable[[str], Awaitable[object]]]] = [
            (10, self.append),
            (4, self._submit),
            (3, self._fold),
            (2, self._fork),
            (1, self.create),
            (2, self._put_blob),
            (2, self._take_over),
            (1, self._renew),
            (1, self._release),
            (2, self._follow),
            (1, self._delete),
        ]
        weights = [weight for weight, _ in choices]
        for _ in range(operations):
            if not self._shared.sessions:
                await self.create()
                continue
            [(_, operation)] = self._random.choices(choices, weights)
            await operation(self._random.choice(self._shared.sessions))

    async def create(self, _: str = "") -> None:
        payload = SessionCreated(title=self._text())
        doing = wire.Create(
            session_id=self._ids.reserve(ids.SESSION),
            first=wire.Sent(self._ids.reserve(ids.EVENT), encode_payload(payload).decode()),
        )
        if await self._do(doing, lambda: self._log.create(payload)):
            self._know(doing.session_id)

    async def _fork(self, parent_id: str) -> None:
        head = await self._head(parent_id)
        if head is None:
            return
        at, title = self._random.randint(1, head), self._text()
        payload = SessionForked(parent_session_id=parent_id, parent_seq=at, title=title)
        doing = wire.Fork(
            session_id=self._ids.reserve(ids.SESSION),
            first=wire.Sent(self._ids.reserve(ids.EVENT), encode_payload(payload).decode()),
            parent_id=parent_id,
            at=at,
        )
        if await self._do(doing, lambda: self._log.fork(parent_id, at=at, title=title)):
            self._know(doing.session_id)

    def _know(self, session_id: str) -> None:
        self._shared.sessions.append(session_id)
        self._shared.own.append(session_id)

    async def _delete(self, _: str) -> None:
        if self._shared.own:
            session_id = self._random.choice(self._shared.own)
            self._shared.own.remove(session_id)
            self._shared.sessions.remove(session_id)
            await self._do(wire.Delete(session_id=session_id), lambda: self._log.delete(session_id))

    async def append(self, session_id: str) -> None:
        writer = await self._writer(session_id)
        if writer is None:
            return
        payloads = [
            AgentMessage(content=(TextBlock(self._text()),))
            for _ in range(self._random.randint(1, 4))
        ]
        sent = tuple(
            wire.Sent(self._ids.fresh(ids.EVENT), encode_payload(p).decode()) for p in payloads
        )
        doing = wire.Append(session_id=session_id, epoch=writer.lease.epoch, events=sent)
        event_ids = [item.id for item in sent]
        if not await self._do(doing, lambda: writer.append(*payloads, event_ids=event_ids)):
            self._writers.pop(session_id, None)  # refused: it must take the lease anew

    async def _fold(self, session_id: str) -> None:
        if writer := await self._writer(session_id):
            doing = wire.Fold(session_id=session_id, epoch=writer.lease.epoch)
            if await self._do(doing, writer.fold_inbox) is None:
                self._writers.pop(session_id, None)

    async def hold(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Writer | None:
        doing = wire.Hold(
            session_id=session_id,
            owner=owner,
            seconds=seconds,
            instead_of=None if instead_of is None else instead_of[1],
        )
        writer = await self._do(
            doing,
            lambda: self._log.hold(session_id, owner=owner, seconds=seconds, instead_of=instead_of),
        )
        if writer is not None:
            self._writers[session_id] = writer
        return writer

    async def _take_over(self, session_id: str) -> Writer | None:
        is_long = self._shared.is_repeatable or self._random.random() < 0.5
        return await self.hold(
            session_id,
            owner=self._random.choice(_OWNERS),
            seconds=_LONG_SECONDS if is_long else self._random.uniform(0.001, 0.03),
            instead_of=await self._holder(session_id) if self._random.random() < 0.5 else None,
        )

    async def _writer(self, session_id: str) -> Writer | None:
        return self._writers.get(session_id) or await self._take_over(session_id)

    async def _renew(self, session_id: str) -> None:
        if writer := self._writers.get(session_id):
            doing = wire.Renew(session_id=session_id, epoch=writer.lease.epoch)
            await self._do(doing, writer.renew)

    async def _release(self, session_id: str) -> None:
        if writer := self._writers.pop(session_id, None):
            doing = wire.Release(session_id=session_id, epoch=writer.lease.epoch)
            await self._do(doing, writer.release)

    async def _submit(self, session_id: str) -> None:
        if self._sent and self._random.random() < 0.3:
            return await self.send_again(self._random.choice(self._sent))
        text = self._text()
        sent = wire.Submit(
            session_id=session_id,
            client_id=self._ids.fresh("client"),
            event_id="",
            text=text,
            body=encode_payload(_said(text)).decode(),
        )
        self._sent.append(sent)
        await self.send_again(sent)

    async def send_again(self, sent: wire.Submit) -> None:
        doing = wire.Submit(
            session_id=sent.session_id,
            client_id=sent.client_id,
            event_id=self._ids.reserve(ids.EVENT),
            text=sent.text,
            body=sent.body,
        )
        await self._do(
            doing,
            lambda: self._log.submit(
                sent.session_id, _said(sent.text), client_id=sent.client_id, sender=TESTER
            ),
        )

    async def _put_blob(self, session_id: str) -> None:
        content = self._random.randbytes(self._random.choice((10, 5_000, 70_000)))
        await self._do(
            wire.PutBlob(session_id=session_id, hash=digest_of(content)),
            lambda: self._log.put_blob(session_id, content, media_type="text/plain"),
        )

    async def _follow(self, session_id: str) -> None:
        """Follow up to where the log ends now: whatever was read must still be there later."""
        head = await self._head(session_id)
        if head is not None:
            after = self._random.randint(max(0, head - 10), head - 1)
            await self._do(
                wire.Follow(session_id=session_id, after=after),
                partial(self._events, session_id, after, head),
            )

    async def _events(self, session_id: str, after: int, head: int) -> list[Event]:
        events: list[Event] = []
        with anyio.fail_after(_FOLLOW_SECONDS):
            async for event in self._log.follow(session_id, after=after):
                events.append(event)
                if event.seq >= head:
                    break
        return events

    async def _do(self, doing: wire.Doing, work: Callable[[], Awaitable[T]]) -> T | None:
        return await self._shared.reporter.doing(doing, work)

    async def _head(self, session_id: str) -> int | None:
        """Where the log ends, unless another task has just deleted it."""
        try:
            return (await self._log.session(session_id)).head.seq
        except LogError:
            return None

    async def _holder(self, session_id: str) -> tuple[str, int] | None:
        try:
            session = await self._log.session(session_id)
        except LogError:
            return None
        return None if session.owner is None else (session.owner, session.epoch)

    def _text(self) -> str:
        words = self._random.choice((1, 3, 10, 10, 40, 1500))
        return " ".join(f"{self._random.getrandbits(24):x}" for _ in range(words))


def _said(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text),))
