"""What was said in earlier sessions is found beside memories, and only by whom it was said to."""

from tests.session_e2e.session_setup import DONE, Play, Scene

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    ContextAdded,
    MemoryRecalled,
    MemoryWritten,
    SessionCreated,
    UserMessage,
)
from mainspring.core.sender import Origin, Sender
from mainspring.log.records import Put, RecordRow
from mainspring.log.session_log import SessionLog

PORT = "The database heron listens on port 6432."


async def talk(scene: Scene) -> str:
    """A session in which each said something, and a program too. Its id."""
    scene.write("memory/lunch.md", "Lunch is at noon.")
    scene.write("heron.txt", "heron is secretly an ostrich")
    reading = calls("read", path="heron.txt")
    async with scene.play(says("Hello."), reading, says(PORT)) as play:
        await play.run()
        await play.run("Is heron the database? I call it heron because it never moves.")
        await play.run("Heron is restored from backups on Mondays.")
        return play.session.id


async def search_memory(play: Play, message: str) -> str:
    await play.run(message)
    return (await play.results())[-1]


async def test_messages_of_earlier_sessions_are_found_with_session_and_author(scene: Scene):
    earlier = await talk(scene)
    scene.write("memory/port.md", "Ports below 1024 need root.")
    searching = calls("memory_search", query="Which port has the database heron?", limit=9)
    async with scene.play(searching, DONE) as play:
        found = await search_memory(play, "Look it up.")
        assert found.startswith(f"[session {earlier} event ")
        assert f"said by the agent]\n> {PORT}" in found
        assert "memory port.md:1" in found
        assert "ostrich" not in found
        events = await play.events(MemoryRecalled)
        assert ("session_agent", earlier) in {(event.store_id, event.path) for event in events}


async def test_writing_what_an_agent_said_earlier_is_untrusted(scene: Scene):
    await talk(scene)
    note = {"name": "Port", "description": "of heron", "text": PORT, "type": "procedure"}
    searching = calls("memory_search", query="Which port has the database heron?")
    writing = calls("memory_write", note=note, reason="found")
    async with scene.play(searching, writing, DONE, mode="bypassPermissions") as play:
        waiting = await play.run("Look it up.")
        assert waiting.reason == "requires_action"
        await play.allow(waiting)
        assert [event.trust for event in await play.events(MemoryWritten)] == ["foreign"]


async def test_a_message_recalls_statements_of_people_only(scene: Scene):
    earlier = await talk(scene)
    for file in (scene.workspace / "memory").glob("*.md"):
        file.unlink()  # what was learned from the session
    scene.write("memory/lunch.md", "Lunch is at noon.")
    async with scene.play(DONE, DONE) as play:
        await play.run("On which day is heron restored from backups?")
        (context,) = await play.events(ContextAdded)
        assert f"[session {earlier} event " in context.text
        assert "said by a person]\n> Heron is restored from backups on Mondays." in context.text
        assert "6432" not in context.text
        assert "Is heron the database?" not in context.text
        (event,) = await play.events(MemoryRecalled)
        assert (event.store_id, event.path) == ("session", earlier)


async def say(log: SessionLog, agent: str, person: str, text: str, origin: Origin) -> str:
    sender = Sender(kind="person", id=person)
    row = await log.create(SessionCreated(agent_name=agent, origin=origin), sender=sender)
    await log.submit(row.id, UserMessage(content=(TextBlock(text),)), sender=sender)
    writer = await log.hold(row.id, owner="test", seconds=60)
    await writer.fold_inbox()
    return row.id


async def test_sessions_of_other_people_are_not_found(scene: Scene):
    scene.write("memory/lunch.md", "Lunch is at noon.")
    mine = Origin(type="user")
    async with scene.play(calls("memory_search", query="zebra", limit=20), DONE) as play:
        log = play.runtime.log
        me = play.runtime.sender.id
        own = await say(log, "hand", me, "My zebra is striped.", mine)
        await say(log, "hand", "cli:someone", "The zebra of another person.", mine)
        await say(log, "other", me, "The zebra of another agent.", mine)
        await say(log, "hand", me, "The zebra of an eval.", Origin(type="eval"))
        served = await say(log, "hand", me, "The zebra of a tenant.", Origin(type="api"))
        row = RecordRow(kind="session", id=served, tenant="acme", created=1, updated=1, body=b"{}")
        await log.store.records.write(Put(row=row))
        found = await search_memory(play, "Find the zebra.")
        assert own in found
        assert found.count("zebra") == 1
