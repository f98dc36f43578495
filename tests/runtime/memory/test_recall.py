"""What a message brings back: what it asks for and not what it excludes, by date, with what is
linked, the useful first, and nothing when nothing is known."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.runtime.memory.memory_setup import ANNA, a_note, memory_folder

from mainspring.core.errors import ProviderFailed
from mainspring.core.events import ContextAdded, KnownPayload, MemoryRecalled
from mainspring.core.sender import Sender
from mainspring.runtime.memory.manifest import ManifestEntry, manifest_picker, picked_memories
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import CONFLICTS, Note
from mainspring.runtime.memory.recall import RECALL_TOKENS, Recall, UtilityValues, decay
from mainspring.runtime.memory.search.memory_index import MemoryIndex
from mainspring.runtime.memory.session_memory import WAKE_UP_TOKENS, SessionMemory, token_count
from mainspring.runtime.utility.ranking import Utility

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
NEW_YEAR = datetime(2027, 1, 1, 0, 30, tzinfo=UTC)
SUMMER_TIME = datetime(2026, 3, 30, 1, tzinfo=UTC)


def session_memory(tmp_path: Path, folder: MemoryFolder, now: datetime = NOW) -> SessionMemory:
    return SessionMemory(
        folders={"agent": folder},
        open_index=lambda: MemoryIndex({"agent": folder}, tmp_path / "index.db"),
        session_id="sesn_1",
        author=Sender(kind="agent", id="helper"),
        clock=lambda: now,
        warn=pytest.fail,
        recalled=set(),
    )


async def no_utility() -> UtilityValues:
    return UtilityValues()


async def recall_notes(recall: Recall, message: str) -> tuple[list[str], str]:
    payloads = await recall(message)
    paths = [item.path for item in payloads if isinstance(item, MemoryRecalled)]
    texts = [item.text for item in payloads if isinstance(item, ContextAdded)]
    return paths, "".join(texts)


def folder_of(tmp_path: Path, **bodies: str) -> MemoryFolder:
    folder = memory_folder(tmp_path / "memory")
    for name, body in bodies.items():
        folder.save(a_note(name, body), ANNA)
    return folder


async def test_excluded_topics_are_not_recalled(tmp_path: Path):
    folder = folder_of(
        tmp_path,
        billing="Billing invoices are sent by the billing service each Monday.",
        shipping="Shipping labels are printed in the shipping office.",
    )
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility)
    for message in (
        "Tell me how shipping labels work, not about billing invoices.",
        "Explain shipping labels. Ignore billing invoices.",
        "How are shipping labels printed? Don't mention billing invoices.",
        "Everything about shipping labels except billing invoices.",
    ):
        assert (await recall_notes(recall, message))[0] == ["project_shipping.md"], message
    paths, _ = await recall_notes(recall, "How are billing invoices and shipping labels made?")
    assert sorted(paths) == ["project_billing.md", "project_shipping.md"]


@pytest.mark.parametrize(
    ("now", "message", "day"),
    [
        (NOW, "What did we decide about the parser on 5 May?", "2026-05-05"),
        (NOW, "What did we decide about the parser yesterday?", "2026-05-19"),
        (NOW, "What did we decide about the parser two weeks ago?", "2026-05-06"),
        (NEW_YEAR, "What did we decide on the parser last night?", "2026-12-31"),
        (SUMMER_TIME, "What did we decide about the parser yesterday?", "2026-03-29"),
        (NOW, "What did we decide about the parser in 2023?", "2023-08-01"),
    ],
)
async def test_a_named_date_comes_first(tmp_path: Path, now: datetime, message: str, day: str):
    folder = memory_folder(tmp_path / "memory")
    days = {"2026-05-05", "2026-05-06", "2026-05-19", "2026-12-31", "2026-03-29", "2023-08-01"}
    for at in sorted(days | {"2025-02-11", "2024-10-03", "2026-08-20"}):
        folder.write(f"{at}.md", f"- We decided about the parser: option {at[-2:]}.", ANNA)
    recall = Recall(memory=session_memory(tmp_path, folder, now), utility=no_utility)
    paths, _ = await recall_notes(recall, message)
    assert paths[0] == f"{day}.md"


async def test_an_unknown_topic_recalls_nothing(tmp_path: Path):
    folder = folder_of(tmp_path, lunch="Lunch is at noon.", port="The staging port is 8080.")
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility)
    for message in ("Who won the marathon in Lima?", "hi", "", "🦆", "!?", "the of and"):
        assert await recall_notes(recall, message) == ([], "")


async def test_contradictory_notes_are_both_recalled_and_marked(tmp_path: Path):
    folder = folder_of(tmp_path, release="We release on Thursdays.")
    note = a_note(
        "release two", "We release on Fridays.", other_fields={CONFLICTS: ["project_release.md"]}
    )
    folder.save(note, ANNA)  # fmt: skip
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility)
    paths, text = await recall_notes(recall, "On which day do we release?")
    assert sorted(paths) == ["project_release.md", "project_release_two.md"]
    assert "disagrees with project_release.md" in text


async def test_links_are_followed_within_the_budget_except_to_archives(tmp_path: Path):
    folder = folder_of(tmp_path, oven="The oven needs a new fuse of ten ampere.")
    linked = ("project_oven.md", "archive/project_old.md", "project_gone.md")
    folder.save(a_note("baking", "Bread is baked at dawn.", links=linked), ANNA)
    folder.save(
        Note(path="archive/project_old.md", name="old", body="Bread was baked at dusk."), ANNA
    )
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility)
    paths, text = await recall_notes(recall, "When is bread baked?")
    assert paths == ["project_baking.md", "project_oven.md"]
    folder.save(a_note("essay", "Bread baked. " + "flour " * 2_000), ANNA)
    paths, text = await recall_notes(recall, "When is bread baked?")
    assert "project_baking.md" in paths
    assert token_count(text) <= RECALL_TOKENS + 60


async def test_of_several_procedures_the_two_most_useful_are_recalled(tmp_path: Path):
    folder = memory_folder(tmp_path / "memory")
    for number in range(5):
        body = f"Deploy recipe {number}: deploy with recipe {number}."
        path = f"procedure_{number}.md"
        folder.save(Note(path=path, name=f"deploy {number}", type="procedure", body=body), ANNA)
    good, bad = Utility(0.95, 9, 9.0), Utility(0.05, 9, 0.0)
    values = {f"agent/procedure_{n}.md": good if n in (3, 4) else bad for n in range(5)}
    values |= {f"agent/x{n}.md": good if n % 2 else bad for n in range(10)}

    async def utility() -> UtilityValues:
        return UtilityValues(values)

    memory = session_memory(tmp_path, folder)
    paths, _ = await recall_notes(
        Recall(memory=memory, utility=utility), "How do I deploy a recipe?"
    )
    assert sorted(paths) == ["procedure_3.md", "procedure_4.md"]
    paths, _ = await recall_notes(
        Recall(memory=memory, utility=no_utility), "How do I deploy a recipe?"
    )
    assert len(paths) == 2


def test_decay_depends_on_type_and_use_refreshes_a_note():
    old = NOW - timedelta(days=60)
    assert decay("episode", old, None, NOW) < decay("project", old, None, NOW) < 1
    assert decay("episode", old, NOW, NOW) == 1.0
    assert decay("episode", NOW - timedelta(days=9_999), None, NOW) == pytest.approx(0.5)


ENTRIES = [
    ManifestEntry("agent", f"n{number}.md", f"note {number} about thing{number}")
    for number in range(9)
]


@pytest.mark.parametrize(
    ("answer", "paths"),
    [
        ('{"memories": ["agent/n1.md", "n2.md"]}', ["n1.md", "n2.md"]),
        ('Sure! {"memories": ["agent/n1.md", "agent/n1.md"]}', ["n1.md"]),
        ('{"memories": ["agent/../../etc/passwd", "user/n1.md", 7, null]}', []),
        (json.dumps({"memories": [f"n{n}.md" for n in range(9)]}), [f"n{n}.md" for n in range(5)]),
        ("the model did not answer: overloaded", []),
        ('{"memories": "n1.md"}', []),
        ("", []),
    ],
)
def test_only_memories_on_the_list_can_be_picked(answer: str, paths: list[str]):
    assert [path for _, path in picked_memories(answer, ENTRIES)] == paths


async def test_a_small_model_picks_memories_and_sees_the_last_tools(tmp_path: Path):
    folder = folder_of(tmp_path, lunch="Lunch is at noon.", port="The staging port is 8080.")
    asked: list[str] = []

    async def ask(system: str, question: str) -> tuple[str, tuple[KnownPayload, ...]]:
        asked.append(question)
        return '{"memories": ["agent/project_lunch.md", "agent/project_invented.md"]}', ()

    pick = manifest_picker(ask, lambda: [("bash", {"command": "ls"})])
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility, pick=pick)
    paths, text = await recall_notes(recall, "I am hungry, but not for soup.")
    assert paths == ["project_lunch.md"]
    assert "> Lunch is at noon." in text
    assert "not for soup" in asked[0]
    assert "Tools used last: bash" in asked[0]
    assert "8080" in asked[0]


async def test_a_recall_model_that_fails_is_reported_once_and_search_is_used(tmp_path: Path):
    folder = folder_of(tmp_path, lunch="Lunch is at noon.")
    warnings: list[str] = []

    async def ask(system: str, question: str) -> tuple[str, tuple[KnownPayload, ...]]:
        raise ProviderFailed("small", "connection", "connection refused")

    memory = session_memory(tmp_path, folder)
    memory.warn = warnings.append
    recall = Recall(memory=memory, utility=no_utility, pick=manifest_picker(ask, list))
    for _ in range(2):
        paths, _ = await recall_notes(recall, "When is lunch?")
        assert paths == ["project_lunch.md"]
    assert len(warnings) == 1
    assert "found by search" in warnings[0]


async def test_a_session_begins_within_its_budget_with_the_lines_of_people_and_the_newest(
    tmp_path: Path,
):
    folder = folder_of(tmp_path)
    for number in range(150):
        name = f"crane {number} of the northern harbour"
        folder.save(a_note(name, f"Crane {number} lifts {number} tons."), ANNA)
    folder.save(replace(a_note("answers", "Answer briefly."), path="feedback_answers.md"), ANNA)
    index = folder.root / "MEMORY.md"
    index.write_text("Ask Grace before a release.\n" + index.read_text())
    [added] = [
        e for e in await session_memory(tmp_path, folder).wake_up() if isinstance(e, ContextAdded)
    ]
    assert token_count(added.text) <= WAKE_UP_TOKENS
    for text in ("Answer briefly.", "Ask Grace before a release.", "crane 149 ", "more lines"):
        assert text in added.text
    assert "crane 1 of" not in added.text
