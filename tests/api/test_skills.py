import io
import stat
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.lib import files_from_dir
from anthropic.lib.tools._skills import download_session_skills
from anthropic.types.beta import BetaManagedAgentsSession, BetaSkill
from tests.api.api_server import Served, collect, ids, served

from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.skills import SkillRoutes
from mainspring.runtime.packages.package_contents import PackageLimits
from mainspring.service.resources.skill_resources import Skills

LIMITS = PackageLimits(max_bytes=100_000, max_files=20)
MANIFEST = b"---\nname: pdf-forms\ndescription: Fills in PDF forms.\n---\n# How\nCarefully.\n"
FILES = [
    ("pdf-forms/SKILL.md", MANIFEST),
    ("pdf-forms/scripts/fill.sh", b"#!/bin/sh\necho filled\n"),
    ("pdf-forms/assets/form.txt", b"name: ____"),
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served(
        tmp_path, lambda records: routes_of(SkillRoutes(Skills(records, limits=LIMITS)))
    ) as running:
        yield running


async def upload_skill(client: AsyncAnthropic) -> BetaSkill:
    return await client.beta.skills.create(files=FILES)


async def test_a_skill_is_uploaded_read_and_deleted_with_its_versions(operator: AsyncAnthropic):
    skill = await operator.beta.skills.create(files=FILES, display_name="PDF forms")
    assert skill.id.startswith("skill_")
    assert (skill.type, skill.source.type) == ("skill", "custom")
    assert skill.display_name == "PDF forms"
    assert await operator.beta.skills.retrieve(skill.id) == skill
    version = await operator.beta.skills.versions.retrieve("latest", skill_id=skill.id)
    assert version.id == skill.latest_version_id
    assert (version.name, version.description) == ("pdf-forms", "Fills in PDF forms.")
    assert version.skill_id == skill.id
    assert (await operator.beta.skills.delete(skill.id)).type == "skill_deleted"
    with pytest.raises(anthropic.NotFoundError):
        await operator.beta.skills.retrieve(skill.id)
    with pytest.raises(anthropic.NotFoundError):
        await operator.beta.skills.versions.retrieve(version.id, skill_id=skill.id)
    assert (await upload_skill(operator)).display_name == "pdf-forms"


async def test_a_skill_folder_is_restored_by_the_official_downloader(api: Served, tmp_path: Path):
    folder = tmp_path / "pdf-forms"
    for path, content in FILES:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    async with api.client() as client:
        skill = await client.beta.skills.create(files=files_from_dir(folder))
        pinned = {"type": "custom", "skill_id": skill.id, "version": "latest"}
        session = BetaManagedAgentsSession.construct(agent={"skills": [pinned], "type": "agent"})
        [got] = await download_session_skills(client, workdir=tmp_path / "work", session=session)
    assert got == (tmp_path / "work/skills/pdf-forms").resolve()
    for path, content in FILES:
        assert (got.parent / path).read_bytes() == content
    assert (got / "scripts/fill.sh").stat().st_mode & stat.S_IXUSR
    assert not (got / "SKILL.md").stat().st_mode & stat.S_IXUSR


async def test_a_skill_can_be_uploaded_as_a_zip_archive(api: Served):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.mkdir("pdf-forms")
        for path, content in FILES:
            archive.writestr(path, content)
        archive.writestr("__MACOSX/pdf-forms/._SKILL.md", b"left by a Mac")
    async with api.client() as client:
        zipped = await client.beta.skills.create(files=[("any.zip", buffer.getvalue())])
        plain = await upload_skill(client)
        archives: list[bytes] = []
        for skill in (zipped, plain):
            download = await client.beta.skills.versions.download(
                skill.latest_version_id, skill_id=skill.id
            )
            archives.append(await download.read())
    assert archives[0] == archives[1]
    with zipfile.ZipFile(io.BytesIO(archives[0])) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == dict(FILES)


async def test_a_download_is_named_after_the_skill(api: Served):
    async with api.client() as client:
        skill = await upload_skill(client)
        answer = await client.beta.skills.versions.with_raw_response.download(
            skill.latest_version_id, skill_id=skill.id
        )
    assert answer.headers["content-type"] == "application/zip"
    assert 'filename="pdf-forms.zip"' in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_versions_are_added_listed_and_deleted(acme: AsyncAnthropic):
    versions = acme.beta.skills.versions
    skill = await upload_skill(acme)
    added = [skill.latest_version_id]
    for note in (b"Two", b"Three"):
        changed = [("renamed/SKILL.md", MANIFEST + note)]
        added.append((await versions.create(skill.id, files=changed)).id)
    assert (await acme.beta.skills.retrieve(skill.id)).latest_version_id == added[2]
    assert await ids(versions.list(skill.id, limit=2)) == added[::-1]
    gone = await versions.delete(added[2], skill_id=skill.id)
    assert (gone.id, gone.type) == (added[2], "skill_version_deleted")
    assert (await versions.retrieve("latest", skill_id=skill.id)).id == added[1]
    await versions.delete(added[0], skill_id=skill.id)
    assert (await acme.beta.skills.retrieve(skill.id)).latest_version_id == added[1]
    with pytest.raises(anthropic.BadRequestError, match="only version"):
        await versions.delete(added[1], skill_id=skill.id)
    with pytest.raises(anthropic.NotFoundError):
        await versions.download(added[2], skill_id=skill.id)


async def test_a_version_keeps_the_name_of_its_skill(acme: AsyncAnthropic):
    skill = await upload_skill(acme)
    other = MANIFEST.replace(b"pdf-forms", b"other")
    with pytest.raises(anthropic.BadRequestError, match="called pdf-forms"):
        await acme.beta.skills.versions.create(skill.id, files=[("x/SKILL.md", other)])
    second = await acme.beta.skills.create(files=[("x/SKILL.md", other)])
    with pytest.raises(anthropic.NotFoundError):
        await acme.beta.skills.versions.retrieve(second.latest_version_id, skill_id=skill.id)


async def test_skills_are_listed_newest_first_and_by_source(acme: AsyncAnthropic):
    made = [(await upload_skill(acme)).id for _ in range(3)]
    assert await ids(acme.beta.skills.list(limit=2)) == made[::-1]
    assert len(await collect(acme.beta.skills.list(source="custom"))) == 3
    assert await collect(acme.beta.skills.list(source="anthropic")) == []
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        await acme.beta.skills.list(limit=1001)


async def test_invalid_skills_are_refused_with_file_and_reason(acme: AsyncAnthropic):
    refused: list[tuple[list[tuple[str, bytes]], str]] = [
        ([("SKILL.md", MANIFEST)], "one folder"),
        ([("a/SKILL.md", MANIFEST), ("b/x", b"")], "one folder, not in a, b"),
        ([("a/readme.md", MANIFEST)], "a/SKILL.md: missing"),
        ([("a/../SKILL.md", MANIFEST)], "plain relative path"),
        ([("a/SKILL.md", b"no head")], "description"),
        ([("a/SKILL.md", b"---\nname: Bad Name\ndescription: d\n---")], "name"),
        ([("a/SKILL.md", b"---\nname: [\n---")], "not YAML"),
        ([("a/SKILL.md", b"\xff")], "not UTF-8"),
        ([("a.zip", b"PK\x03\x04 but not really")], "a.zip"),
    ]
    for files, reason in refused:
        with pytest.raises(anthropic.BadRequestError, match=reason):
            await acme.beta.skills.create(files=files)
    with pytest.raises(anthropic.BadRequestError, match="display_name"):
        await acme.beta.skills.create(files=FILES, display_name="two\nlines")
    for files in (
        [*FILES, ("pdf-forms/large.bin", b"x" * 100_000)],
        [*FILES, *((f"pdf-forms/{n}", b"") for n in range(18))],
    ):
        with pytest.raises(anthropic.APIStatusError) as refusal:
            await acme.beta.skills.create(files=files)
        assert refusal.value.status_code == 413
    assert await collect(acme.beta.skills.list()) == []
