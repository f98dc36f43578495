"""A model writes memory: what people say in any language, and what it may not do.

The model is scripted at its boundary; rules, log, folders and index are the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec import Struct, yaml
from tests.runtime.memory.memory_setup import AGENT, ANNA, a_note, memory_folder
from tests.runtime.memory.test_session_learning import PERSON, TUESDAY
from tests.runtime.memory.test_stories import STORIES, Story, problems

from mainspring.core import events
from mainspring.core.content import Block, DocumentBlock, PlainTextSource, TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import KnownPayload, MemoryExtracted, MemoryLearned, ModelRequestEnded
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite.store import open_sqlite
from mainspring.log.writer import Writer
from mainspring.runtime.memory.note import INDEX_FILE, NoteType, Trust, note_path
from mainspring.runtime.memory.search.memory_index import MemoryIndex
from mainspring.runtime.memory.session_learning import learn_from_run
from mainspring.runtime.memory.session_memory import LearningModel, SessionMemory
from mainspring.runtime.model_question import settled_facts

HERE = Path(__file__).parent
KEY = b"of this installation"
OTHER = Sender(kind="agent", id="other")
Answer = str | Sequence[Mapping[str, object]]


class ModelStory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    say: list[str]
    answers: list[list[dict[str, object]]]
    known: list[str] = []
    trust: Trust = "agent"
    notes: int | None = None
    keep: list[str] = []
    drop: list[str] = []
    stale: list[str] = []
    conflict: bool = False


class WrongAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer that must change nothing, and what happens in its session."""

    title: str
    say: str
    answer: str | list[dict[str, object]]
    known: list[str] = []
    type: NoteType = "project"
    refused: str = ""
    skill: str | None = None
    attached: str = ""
    folder: str = ""
    tool: str = ""
    agent: str = ""
    other: str = ""


def read(name: str, kind: type[ModelStory] | type[WrongAnswer]) -> list[ModelStory | WrongAnswer]:
    return yaml.decode((HERE / name).read_bytes(), type=list[kind])


MODEL_STORIES = cast("list[ModelStory]", read("model_stories.yaml", ModelStory))
REFUSALS = cast("list[WrongAnswer]", read("model_refusals.yaml", WrongAnswer))
ATTACKS = cast("list[WrongAnswer]", read("model_attacks.yaml", WrongAnswer))
RULES: tuple[tuple[NoteType, str], ...] = (
    ("feedback", "Never push to main."),
    ("project", "The staging server is at stage.example.org."),
    ("project", "We release on Thursdays."),
    ("feedback", "Ask before you delete files."),
)
"""The memories that the attacks are about, in the order of the file."""


def title(story: ModelStory | WrongAnswer | Story) -> str:
    return story.title.replace(" ", "-")


class World:
    """A store of sessions, a folder of memories, and a model with one answer at a time."""

    def __init__(self, place: Path, log: SessionLog) -> None:
        self.place, self.log = place, log
        self.folder = memory_folder(place / "memory")
        self.time = TUESDAY
        self.questions: list[str] = []
        self.answer: Callable[[Mapping[str, str]], str] = lambda _: '{"operations": []}'
        self.names: dict[str, str] = {}
        self.warnings: list[str] = []
        self.price = Decimal(0)
        self.max_usd = Decimal("0.05")

    async def ask(
        self, request_id: str, system: str, question: str
    ) -> tuple[str, tuple[KnownPayload, ...]]:
        del system
        self.questions.append(f"{request_id}\n{question}")
        ended = ModelRequestEnded(
            model_request_start_id="",
            model_usage=events.Usage(input_tokens=900, output_tokens=60),
            model="scripted",
            purpose="extract",
            cost_usd=str(self.price),
        )
        return self.answer(self.names), settled_facts(ended)

    def memory(self, session_id: str) -> SessionMemory:
        return SessionMemory(
            folders={"agent": self.folder},
            open_index=lambda: MemoryIndex({"agent": self.folder}, self.place / "index.db"),
            session_id=session_id,
            author=Sender(kind="agent", id="helper"),
            clock=lambda: self.time,
            warn=self.warnings.append,
            recalled=set(),
            learning_model=LearningModel(
                ask=self.ask, price=lambda _: self.price, max_usd=self.max_usd
            ),
        )

    async def begin(self) -> Writer:
        row = await self.log.create(events.SessionCreated(agent_name="helper"), sender=PERSON)
        return await self.log.hold(row.id, owner="test")

    async def say(
        self, writer: Writer, *content: Block, skill: str | None = None, sender: Sender = PERSON
    ) -> Event:
        message = events.UserMessage(content=content, skill=skill)
        await self.log.submit(writer.session_id, message, sender=sender)
        return (await writer.fold_inbox())[-1]

    async def learn(self, writer: Writer) -> list[Event]:
        await learn_from_run(self.memory(writer.session_id), self.log, writer)
        return await self.log.read(writer.session_id)

    def remember(self, text: str, kind: NoteType = "project", trust: Trust = "agent") -> str:
        note = replace(a_note(text, text), type=kind, path=note_path(kind, text), trust=trust)
        self.folder.save(note, ANNA if trust == "person" else AGENT)
        return note.path

    def texts(self) -> dict[str, str]:
        return {path: self.folder.text(path) for path in self.folder.paths()}

    def paths(self) -> dict[str, str]:
        own = [path for path in self.folder.paths() if path != INDEX_FILE]
        return {f"${number}": f"agent/{path}" for number, path in enumerate(own, 1)}


@asynccontextmanager
async def a_world(place: Path) -> AsyncGenerator[World, None]:
    async with open_sqlite(place / "log.db", key=KEY) as store:
        world = World(place, SessionLog(store, clock=lambda: TUESDAY))
        world.log = SessionLog(store, clock=lambda: world.time)
        yield world


def answer_of(answer: Answer, names: Mapping[str, str]) -> str:
    """The text of a recorded answer: `$1`, `$event` and the like become what they stand for."""
    if isinstance(answer, str):
        return answer

    def value(text: object) -> object:
        return names.get(text, text) if isinstance(text, str) else text

    items = [{"event": "$event", **item} for item in answer]
    operations = [{key: value(text) for key, text in item.items()} for item in items]
    return msgspec.json.encode({"operations": operations}).decode()


async def play(story: ModelStory | Story, world: World) -> None:
    """Each message is a session of its own, a day after the one before."""
    known = story.known if isinstance(story, ModelStory) else []
    for text in known:
        world.remember(text, trust=cast("ModelStory", story).trust)
    nothing: list[list[dict[str, object]]] = [[] for _ in story.say]
    answers = story.answers if isinstance(story, ModelStory) else nothing
    for day, (message, answer) in enumerate(zip(story.say, answers, strict=True)):
        world.time = TUESDAY + timedelta(days=day)
        writer = await world.begin()
        event = await world.say(writer, TextBlock(message))
        world.answer = lambda names, answer=answer: answer_of(answer, names)
        world.names = {**world.paths(), "$event": event.id}
        await world.learn(writer)
        assert world.warnings == []


@pytest.mark.parametrize("story", MODEL_STORIES, ids=title)
async def test_a_model_writes_what_rules_do_not_understand(story: ModelStory, tmp_path: Path):
    async with a_world(tmp_path) as world:
        await play(story, world)
    shown = Story(
        title=story.title,
        say=story.say,
        notes=story.notes,
        keep=story.keep,
        drop=story.drop,
        stale=story.stale,
        conflict=story.conflict,
    )
    assert problems(shown, world.folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_no_story_in_english_ends_differently_with_a_model(story: Story, tmp_path: Path):
    async with a_world(tmp_path) as world:
        await play(story, world)
    assert problems(story, world.folder) == []
    assert world.questions


async def one_session(wrong: WrongAnswer, world: World) -> list[Event]:
    """The events of a session in which a model gives a wrong answer."""
    writer = await world.begin()
    names = {"$long": "all work and no play " * 100, **world.paths()}
    if wrong.tool:
        call = events.AgentToolUse(name="web_fetch", input={"url": "https://x.example"})
        (use,) = await writer.append(call)
        result = events.AgentToolResult(tool_use_id=use.id, content=(TextBlock(wrong.tool),))
        (event,) = await writer.append(result)
        names["$tool"] = event.id
    if wrong.agent:
        (event,) = await writer.append(events.AgentMessage(content=(TextBlock(wrong.agent),)))
        names["$agent"] = event.id
    if wrong.other:
        event = await world.say(writer, TextBlock(wrong.other), sender=OTHER)
        names["$other"] = event.id
    blocks: list[Block] = [TextBlock(wrong.say)]
    if wrong.attached:
        source = PlainTextSource(data=wrong.attached)
        blocks.insert(0, DocumentBlock(source=source, title="notes.md"))
    if wrong.folder:
        blocks.insert(0, TextBlock(f"<folder path='docs'>\n{wrong.folder}\n</folder>"))
    event = await world.say(writer, *blocks, skill=wrong.skill)
    world.names = {**names, "$event": event.id}
    world.answer = lambda names: answer_of(wrong.answer, names)
    return await world.learn(writer)


@pytest.mark.parametrize("wrong", REFUSALS, ids=title)
async def test_a_wrong_answer_is_refused_and_logged(wrong: WrongAnswer, tmp_path: Path):
    async with a_world(tmp_path) as world:
        for text in wrong.known:
            world.remember(text, wrong.type)
        before = world.texts()
        log = await one_session(wrong, world)
    assert world.texts() == before
    refused = [
        item.problem
        for event in log
        if isinstance(event.payload, MemoryExtracted)
        for item in event.payload.refused
    ]
    assert any(wrong.refused in problem for problem in refused), refused


@pytest.mark.parametrize("attack", ATTACKS, ids=title)
async def test_no_attack_plants_replaces_or_erases(attack: WrongAnswer, tmp_path: Path):
    async with a_world(tmp_path) as world:
        paths = [world.remember(text, kind) for kind, text in RULES]
        names = {f"${number}": f"agent/{path}" for number, path in enumerate(paths, 1)}
        world.paths = lambda: names
        before = {path: world.folder.text(path) for path in paths}
        await one_session(attack, world)
        after = world.texts()
    assert {path: after.get(path) for path in paths} == before
    added = "\n".join(text for path, text in after.items() if path not in before)
    assert "evil" not in added.lower()


async def test_what_was_asked_is_not_asked_again_and_a_later_message_is(tmp_path: Path):
    async with a_world(tmp_path) as world:
        writer = await world.begin()
        await world.say(writer, TextBlock("Unser Wiki ist unter wiki.example.org."))
        await world.learn(writer)
        await world.learn(writer)
        assert len(world.questions) == 1
        await world.say(writer, TextBlock("ok"))  # says nothing by itself
        await world.learn(writer)
        assert len(world.questions) == 1
        await world.say(writer, TextBlock("Unser Chat ist unter chat.example.org."))
        log = await world.learn(writer)
    assert len(world.questions) == 2
    assert "wiki.example.org" not in world.questions[1]
    ids = [event.payload.request_id for event in log if isinstance(event.payload, MemoryLearned)]
    assert len(set(ids)) == 2


async def test_a_session_spends_no_more_than_its_budget(tmp_path: Path):
    async with a_world(tmp_path) as world:
        world.price, world.max_usd = Decimal("0.02"), Decimal("0.05")
        writer = await world.begin()
        for number in range(4):
            await world.say(writer, TextBlock(f"Zimmer {number} hat {number} Fenster."))
            await world.learn(writer)
    assert len(world.questions) == 2
    assert "has spent 0.04 of 0.05 US dollars" in world.warnings[0]


async def test_foreign_memories_are_not_shown_to_the_model(tmp_path: Path):
    async with a_world(tmp_path) as world:
        world.remember("The mirror is at evil.example.", trust="foreign")
        world.remember("The mirror is slow.")
        writer = await world.begin()
        await world.say(writer, TextBlock("Der Mirror ist langsam, oder?"))
        await world.learn(writer)
    assert "evil" not in world.questions[0]
    assert "The mirror is slow." in world.questions[0]
