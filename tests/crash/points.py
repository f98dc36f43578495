"""Ways to kill: each plays one crash and leaves what was reported in the history."""

import signal
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace
from tests.crash import wire
from tests.crash.children import Child, Kill, Zygote, listen
from tests.crash.history import History
from tests.crash.report import Kind, Violation

STATEMENTS = 150
"""Deaths before a statement sweep over the first so many of a life; opening takes about ten."""
_OPERATIONS = 60
_SLEEPER_SECONDS = 0.03


@dataclass(slots=True)
class Scene:
    """One database, the zygote that works on it, and what is known of it."""

    zygote: Zygote
    history: History
    random: Random
    url: str
    opener: str
    tag: str
    lives: int = 0
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    """How far followers have come, by session."""

    def next_tag(self) -> str:
        self.lives += 1
        return f"{self.tag}l{self.lives}"

    def living(self) -> list[str]:
        stories = self.history.stories.values()
        return [story.id for story in stories if story.is_promised and not story.is_deleting]


def at_statement(scene: Scene, number: int) -> list[Violation]:
    """A child dies before its `number`-th SQL statement, also in the midst of a transaction."""
    return _play(scene, scene.zygote.start(replace(_work(scene), tasks=1, kill_at=number)))


def at_an_instant(scene: Scene) -> list[Violation]:
    order = replace(_work(scene), tasks=scene.random.randint(1, 4))
    return _play(scene, scene.zygote.start(order, _soon_after(scene, 60)))


def one_of_two(scene: Scene) -> list[Violation]:
    """Two processes share sessions and take leases from each other; one is killed."""
    first = replace(_work(scene), tasks=2)
    second = replace(_work(scene), tasks=2, operations=20, sessions=first.sessions)
    return _play(
        scene, scene.zygote.start(first, _soon_after(scene, 80)), scene.zygote.start(second)
    )


def while_following(scene: Scene) -> list[Violation]:
    """A follower is killed and comes back with its cursor, while a writer is killed too."""
    living = scene.living()
    if not living:
        return at_an_instant(scene)
    session_id = scene.random.choice(living[-4:])
    work = replace(_work(scene), tasks=2, sessions=(session_id,))
    writer = scene.zygote.start(work, _soon_after(scene, 80))
    count, delay = scene.random.randint(1, 20), scene.random.uniform(0, 0.003)
    is_patient = scene.random.random() < 0.5

    def kill(follower: Child) -> float | None:
        is_through = writer.ended and _is_at(follower, _acked_upto(writer, session_id))
        is_enough = not is_patient and len(follower.lines) >= count
        return delay if is_through or is_enough else None

    return _follow(scene, session_id, kill, writer)


def while_stopped(scene: Scene) -> list[Violation]:
    """A writer is stopped until its lease is another's, then goes on: it must be refused."""
    sleeper = scene.zygote.start(
        wire.Sleep(
            url=scene.url, opener=scene.opener, tag=scene.next_tag(), seconds=_SLEEPER_SECONDS
        )
    )
    listen(scene.zygote, [sleeper], until=lambda: _stopping(sleeper) is not None)
    session_id = _stopping(sleeper)
    if session_id is None:
        return _play(scene, sleeper)
    scene.zygote.wait_until_stopped(sleeper)
    taker = scene.zygote.start(
        wire.Take(url=scene.url, opener=scene.opener, tag=scene.next_tag(), session_id=session_id)
    )
    listen(scene.zygote, [taker])
    sleeper.signal(signal.SIGCONT)
    violations = _play(scene, sleeper, taker)
    last = sleeper.lines[-1]
    if not (isinstance(last, wire.Refused) and last.error == "Fenced"):
        what = f"a writer that had lost its lease was told {last}"
        violations.append(_violation("fenced_append", session_id, what))
    return violations


def catch_up(scene: Scene) -> list[Violation]:
    """Followers see the rest of their sessions, to the end."""
    violations: list[Violation] = []
    for session_id in sorted(scene.cursors):
        head = scene.history.stories[session_id].checked

        def kill(follower: Child, head: int = head) -> float | None:
            return 0.0 if _is_at(follower, head) else None

        if scene.cursors[session_id] < head:
            violations += _follow(scene, session_id, kill)
    return violations


def _work(scene: Scene) -> wire.Work:
    random = scene.random
    living = scene.living()
    chosen = {*living[-3:], *random.sample(living, min(2, len(living)))}
    retries = list(scene.history.unanswered.values())[-5:]
    for session_id in sorted(chosen):
        clients = list(scene.history.stories[session_id].clients.values())
        retries += [client.sent for client in clients[-1:]]
    return wire.Work(
        url=scene.url,
        opener=scene.opener,
        seed=random.getrandbits(32),
        tag=scene.next_tag(),
        sessions=tuple(sorted(chosen)),
        retries=tuple(retries),
        operations=_OPERATIONS,
    )


def _soon_after(scene: Scene, most_lines: int) -> Kill:
    """Kill a child shortly after it has said something: most likely in the midst of the next."""
    count, delay = scene.random.randint(1, most_lines), scene.random.uniform(0, 0.003)
    return lambda child: delay if len(child.lines) >= count else None


def _play(scene: Scene, *children: Child) -> list[Violation]:
    """Hear children to their ends."""
    listen(scene.zygote, children)
    scene.history.hear(*children)
    broke = [line for child in children for line in child.lines if isinstance(line, wire.Broke)]
    return [_violation("child", "", line.trace) for line in broke]


def _follow(scene: Scene, session_id: str, kill: Kill, *others: Child) -> list[Violation]:
    """Follow on from where the last follower was killed: each event comes exactly once."""
    after = scene.cursors.get(session_id, 0)
    order = wire.Watch(url=scene.url, opener=scene.opener, session_id=session_id, after=after)
    follower = scene.zygote.start(order, kill)
    violations = _play(scene, follower, *others)
    story = scene.history.story(session_id)
    for line in follower.lines:
        if isinstance(line, wire.Saw):
            if line.seq != after + 1:
                what = f"a follower saw {line.seq} after {after}"
                violations.append(_violation("follower", session_id, what))
            after = line.seq
            scene.history.promise(story, wire.SeenEvent(line.seq, line.id))
    scene.cursors[session_id] = after
    return violations


def _is_at(follower: Child, seq: int) -> bool:
    last = follower.lines[-1] if follower.lines else None
    return (last.seq if isinstance(last, wire.Saw) else 0) >= seq


def _acked_upto(writer: Child, session_id: str) -> int:
    """The last event of a session that a writer was told is written."""
    last = 0
    mine: set[int] = set()
    for line in writer.lines:
        if isinstance(line, wire.Tried) and isinstance(line.doing, wire.Append):
            if line.doing.session_id == session_id:
                mine.add(line.operation)
        elif isinstance(line, wire.Acked) and line.operation in mine:
            last = max(last, line.seen[-1].seq)
    return last


def _stopping(child: Child) -> str | None:
    last = child.lines[-1] if child.lines else None
    return last.session_id if isinstance(last, wire.Stopping) else None


def _violation(kind: Kind, session_id: str, what: str) -> Violation:
    return Violation(kind=kind, session_id=session_id, what=what)
