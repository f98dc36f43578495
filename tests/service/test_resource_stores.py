"""What must hold on either store: changes at once, and a thing and its versions in one write."""

import pytest
from tests.at_once import at_once

from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.log.records import Records
from mainspring.runtime.packages.package_contents import UploadedFile
from mainspring.service.resources.agents import Agents, CreateAgent, UpdateAgent, content_hash
from mainspring.service.resources.file_resources import Files, NewFile
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.storage.repository import ListQuery

MANIFEST = b"---\nname: pdf\ndescription: Reads PDF files.\n---\nRead."


async def test_concurrent_changes_all_apply_and_every_version_is_complete(records: Records):
    agents = Agents(records)
    agent = await agents.create("acme", CreateAgent(model="m", name="a"))

    async def note(index: int) -> None:
        while True:
            try:
                await agents.update("acme", agent.id, UpdateAgent(metadata={f"k{index}": "x"}))
            except StaleVersion:
                continue
            return

    await at_once(note, range(10))
    now = await agents.get("acme", agent.id)
    assert now.version == 11
    page = await agents.versions("acme", agent.id, ListQuery(limit=100))
    assert [item.version for item in page.data] == list(range(11, 0, -1))
    assert [len(item.metadata) for item in page.data] == list(range(10, -1, -1))
    assert await agents.get("acme", agent.id, 11) == now


async def test_only_one_of_two_concurrent_updates_of_a_version_succeeds(records: Records):
    agents = Agents(records)
    agent = await agents.create("acme", CreateAgent(model="m", name="a"))
    [renamed] = await at_once(
        lambda name: agents.update("acme", agent.id, UpdateAgent(name=name, version=1)),
        ("b", "c", "d"),
        refusal=StaleVersion,
    )
    assert renamed.version == 2
    assert await agents.get("acme", agent.id) == renamed


async def test_equal_definitions_have_equal_hashes(records: Records):
    agents = Agents(records)
    one = await agents.create("acme", CreateAgent(model="m", name="a", metadata={"x": "1"}))
    other = await agents.create("rival", CreateAgent(model="m", name="a"))
    assert content_hash(one) != content_hash(other)
    changed = await agents.update("rival", other.id, UpdateAgent(metadata={"x": "1"}))
    assert content_hash(one) == content_hash(changed)


async def test_concurrent_skill_versions_are_all_stored_and_deleted_together(records: Records):
    skills = Skills(records)
    skill = await skills.create("acme", [UploadedFile(path="pdf/SKILL.md", content=MANIFEST)])
    added = (
        UploadedFile(path="pdf/SKILL.md", content=MANIFEST + end) for end in (b"1", b"2", b"3")
    )
    await at_once(lambda file: skills.add_version("acme", skill.id, [file]), added)
    page = await skills.versions("acme", skill.id, ListQuery())
    assert len({version.content_hash for version in page.data}) == 4
    latest = (await skills.get("acme", skill.id)).latest_version_id
    assert latest in {version.id for version in page.data}
    await skills.delete("acme", skill.id)
    for version in page.data:
        with pytest.raises(NotFound):
            await records.content("skill_version", version.id)


async def test_a_file_is_stored_whole_and_listed_by_its_session(records: Records):
    files = Files(records, max_bytes=3_000_000)
    content = bytes(range(256)) * 8000
    file = await files.create("acme", NewFile(content=content, session_id="sesn_1"))
    await files.create("acme", NewFile(content=b"other"))
    assert await files.content("acme", file.id) == (file, content)
    assert list((await files.page("acme", ListQuery(label="sesn_1"))).data) == [file]
    with pytest.raises(InvalidInput, match="filename"):
        await files.create("acme", NewFile(content=b"", filename="n" * 300))
