"""Uploaded skills with all their versions: checked, packed into an archive and stored."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion, TooLarge
from mainspring.core.ids import ExternalId, SkillId
from mainspring.harness.context.frontmatter import read_frontmatter
from mainspring.log.records import RecordChange, RecordQuery, RecordRow, Records, Remove
from mainspring.runtime.packages.package_contents import (
    LIMITS,
    MANIFEST,
    PackageLimits,
    UploadedFile,
    check_files,
    unpack_archive,
)
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64  # characters: the specification of SKILL.md
_MAX_DESCRIPTION = 1024  # characters: the specification of SKILL.md
_MAX_MANIFEST_BYTES = 1_000_000  # of SKILL.md
_ZIP_UNIX = 3  # "made by" of a ZIP entry (APPNOTE 4.4.2)
# The earliest time of a ZIP entry: equal contents give equal bytes.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillBundle:
    """A valid skill."""

    name: str
    description: str
    files: tuple[UploadedFile, ...]
    """Sorted by path, which is relative to the skill's folder."""
    content_hash: str


def read_skill_bundle(uploads: Sequence[UploadedFile], limits: PackageLimits) -> SkillBundle:
    """Read a skill from files under one folder, or from that folder as a zip archive.

    Raises: InvalidInput, TooLarge: with the file and the reason.
    """
    match uploads:
        case [UploadedFile(path=path, content=content)] if path.lower().endswith(".zip"):
            uploads = list(unpack_archive(path, content, limits))
        case _:
            pass
    folder, files = _split_folder(check_files(uploads, limits))
    name, description = _read_manifest(folder, files)
    return SkillBundle(
        name=name, description=description, files=files, content_hash=_content_hash(files)
    )


def pack_skill(bundle: SkillBundle) -> bytes:
    """A zip archive with one folder named like the skill; the same bundle gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in bundle.files:
            entry = zipfile.ZipInfo(f"{bundle.name}/{file.path}", date_time=_ZIP_EPOCH)
            entry.create_system = _ZIP_UNIX
            entry.external_attr = (stat.S_IFREG | (0o755 if file.is_executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)
    return buffer.getvalue()


def _split_folder(uploads: Mapping[str, UploadedFile]) -> tuple[str, tuple[UploadedFile, ...]]:
    """The folder, and the files by their paths in it."""
    folders: set[str] = set()
    files: list[UploadedFile] = []
    for path, upload in sorted(uploads.items()):
        folder, slash, inside = path.partition("/")
        if not slash:
            raise InvalidInput(f"{path}: put all files into one folder, such as skill/{path}")
        folders.add(folder)
        files.append(dataclasses.replace(upload, path=inside))
    if len(folders) != 1:
        names = ", ".join(sorted(folders)[:3]) or "none"
        raise InvalidInput(f"files: must all be in one folder, not in {names}")
    return folders.pop(), tuple(files)


def _read_manifest(folder: str, files: Sequence[UploadedFile]) -> tuple[str, str]:
    manifest = next((file for file in files if file.path == MANIFEST), None)
    where = f"{folder}/{MANIFEST}"
    if manifest is None:
        raise InvalidInput(f"{where}: missing; a skill must have this file")
    if len(manifest.content) > _MAX_MANIFEST_BYTES:
        raise TooLarge(f"{where}: may have at most {_MAX_MANIFEST_BYTES} bytes")
    try:
        head = read_frontmatter(manifest.content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{where}: not UTF-8") from None
    if head.issues:  # published skills must be valid
        issue = head.issues[0]
        raise InvalidInput(f"{where}:{issue.line}: {issue.what}")
    name = _check_name(head.fields.get("name", folder), where)
    return name, _check_description(head.fields.get("description"), where)


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{where}: name: 1 to {_MAX_NAME} lowercase letters, digits and single hyphens"
        )
    return name


def _check_description(description: object, where: str) -> str:
    if not isinstance(description, str) or not description.strip():
        raise InvalidInput(
            f"{where}: description: must state what the skill does and when to use it"
        )
    if len(description.strip()) > _MAX_DESCRIPTION:
        raise InvalidInput(f"{where}: description: at most {_MAX_DESCRIPTION} characters")
    return description.strip()


def _content_hash(files: Sequence[UploadedFile]) -> str:
    file_hashes = [
        (file.path, file.is_executable, hashlib.sha256(file.content).hexdigest()) for file in files
    ]
    return hashlib.sha256(msgspec.json.encode(file_hashes)).hexdigest()


LATEST = "latest"
"""The name of the newest version."""

_MAX_VERSIONS_READ = 1000  # of one skill
_CONFLICTS = (StaleVersion, NotFound)
"""The skill was changed or deleted meanwhile: read it again."""

DisplayName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\r\n]*$")]


class SkillSource(Struct, frozen=True, kw_only=True):
    type: Literal["custom", "anthropic", "anthropic_example", "plugin"]


class SkillObject(Struct, frozen=True, kw_only=True):
    id: str
    created_at: datetime
    updated_at: datetime
    display_name: str
    latest_version_id: str
    source: SkillSource = SkillSource(type="custom")
    type: Literal["skill"] = "skill"


class SkillVersion(Struct, frozen=True, kw_only=True):
    id: str
    created_at: datetime
    description: str
    name: str
    """The same for all versions of a skill."""
    skill_id: str
    content_hash: str
    """An extension: SHA-256 of the paths and contents of its files."""
    type: Literal["skill_version"] = "skill_version"


class AnthropicSkill(Struct, frozen=True, kw_only=True, tag_field="type", tag="anthropic"):
    skill_id: str
    version: str


class CustomSkill(Struct, frozen=True, kw_only=True, tag_field="type", tag="custom"):
    skill_id: str
    version: str


AgentSkill: TypeAlias = AnthropicSkill | CustomSkill


class AnthropicSkillParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="anthropic"):
    skill_id: Annotated[ExternalId, Meta(min_length=1, max_length=64)]
    version: str | None = None


class CustomSkillParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="custom"):
    skill_id: SkillId
    version: str | None = None


SkillParams: TypeAlias = AnthropicSkillParams | CustomSkillParams
SkillsParams = Annotated[tuple[SkillParams, ...], Meta(max_length=20)]


class Skills:
    def __init__(
        self, records: Records, *, limits: PackageLimits = LIMITS, clock: Clock = clocks.now
    ) -> None:
        self.limits = limits
        self._skills = Repository(records, "skill", SkillObject, clock=clock)
        self._versions = Repository(
            records, "skill_version", SkillVersion, columns=_version_index_columns, clock=clock
        )
        self.get = self._skills.get
        self.page = self._skills.page
        self._clock = clock

    async def create(
        self, tenant: str, uploads: Sequence[UploadedFile], display_name: str | None = None
    ) -> SkillObject:
        """Raises: InvalidInput, TooLarge."""
        bundle, archive = await self._read(uploads)
        version = self._version(ids.new_id("skill"), bundle)
        skill = SkillObject(
            id=version.skill_id,
            created_at=version.created_at,
            updated_at=version.created_at,
            display_name=display_name or bundle.name,
            latest_version_id=version.id,
        )
        await self._skills.records.write(
            self._skills.put_change(tenant, skill),
            self._versions.put_change(tenant, version, content=archive),
        )
        return skill

    async def delete(self, tenant: str, skill_id: str) -> None:
        """Delete a skill with all its versions. Raises: NotFound."""

        async def prepare() -> tuple[None, list[RecordChange]]:
            row = await self._skills.row(tenant, skill_id)
            rows = [row, *await self._version_rows(tenant, skill_id)]
            return None, [Remove(row=item) for item in rows]

        await self._skills.transact(skill_id, prepare, conflicts=_CONFLICTS)

    async def add_version(
        self, tenant: str, skill_id: str, uploads: Sequence[UploadedFile]
    ) -> SkillVersion:
        """Raises: NotFound, InvalidInput: another name, TooLarge."""
        current = await self.version(tenant, skill_id, LATEST)
        bundle, archive = await self._read(uploads)
        if bundle.name != current.name:
            raise InvalidInput(
                f"SKILL.md: name: the skill is called {current.name}, and its name cannot change;"
                f" create another skill for {bundle.name}"
            )
        version = self._version(skill_id, bundle)

        async def prepare() -> tuple[SkillVersion, list[RecordChange]]:
            row = await self._skills.row(tenant, skill_id)
            skill = replace(
                self._skills.read(row), latest_version_id=version.id, updated_at=version.created_at
            )
            change = self._versions.put_change(tenant, version, content=archive)
            return version, [self._skills.replace_change(row, skill), change]

        return await self._skills.transact(skill_id, prepare, conflicts=_CONFLICTS)

    async def version(self, tenant: str, skill_id: str, version_id: str) -> SkillVersion:
        """A version by its id, or the `latest`. Raises: NotFound."""
        skill = await self._skills.get(tenant, skill_id)
        if version_id == LATEST:
            version_id = skill.latest_version_id
        return await self._versions.get(tenant, version_id, parent=skill_id)

    async def versions(self, tenant: str, skill_id: str, query: ListQuery) -> Page[SkillVersion]:
        """The newest first. Raises: NotFound."""
        await self._skills.get(tenant, skill_id)
        return await self._versions.page(tenant, dataclasses.replace(query, parent=skill_id))

    async def archive(
        self, tenant: str, skill_id: str, version_id: str
    ) -> tuple[SkillVersion, bytes]:
        """A version with its files as a zip archive. Raises: NotFound."""
        version = await self.version(tenant, skill_id, version_id)
        return version, await self._versions.records.content(self._versions.kind, version.id)

    async def delete_version(self, tenant: str, skill_id: str, version_id: str) -> SkillVersion:
        """Raises: NotFound, InvalidInput: it is the only one."""

        async def prepare() -> tuple[SkillVersion, list[RecordChange]]:
            row = await self._skills.row(tenant, skill_id)
            version = await self.version(tenant, skill_id, version_id)
            rows = await self._version_rows(tenant, skill_id)
            remaining = [item for item in rows if item.id != version.id]
            if not remaining:
                raise InvalidInput(f"{version.id} is the only version; delete the skill instead")
            skill = replace(
                self._skills.read(row), latest_version_id=remaining[0].id, updated_at=self._clock()
            )
            remove = Remove(row=await self._versions.row(tenant, version.id))
            return version, [self._skills.replace_change(row, skill), remove]

        return await self._skills.transact(skill_id, prepare, conflicts=_CONFLICTS)

    async def pin(self, tenant: str, skill: AgentSkill) -> AgentSkill:
        """The skill with the id of its latest version."""
        if isinstance(skill, AnthropicSkill) or skill.version != LATEST:
            return skill
        try:
            latest = await self.version(tenant, skill.skill_id, LATEST)
        except NotFound:  # deleted since; sessions run without it
            return skill
        return replace(skill, version=latest.id)

    async def resolve(self, tenant: str, params: Sequence[SkillParams]) -> tuple[AgentSkill, ...]:
        """The skills that an agent names. Raises: InvalidInput."""
        skills: list[AgentSkill] = []
        for index, skill in enumerate(params):
            where = f"skills[{index}]"
            version = skill.version or LATEST
            if any(skill.skill_id == item.skill_id for item in skills):
                raise InvalidInput(f"{where}: {skill.skill_id} is listed twice")
            if isinstance(skill, AnthropicSkillParams):
                skills.append(AnthropicSkill(skill_id=skill.skill_id, version=version))
                continue
            try:
                await self.version(tenant, skill.skill_id, version)
            except NotFound as error:
                raise InvalidInput(f"{where}: {error}") from error
            skills.append(CustomSkill(skill_id=skill.skill_id, version=version))
        return tuple(skills)

    async def _read(self, uploads: Sequence[UploadedFile]) -> tuple[SkillBundle, bytes]:
        def read() -> tuple[SkillBundle, bytes]:
            bundle = read_skill_bundle(uploads, self.limits)
            return bundle, pack_skill(bundle)

        return await to_thread.run_sync(read)

    def _version(self, skill_id: str, bundle: SkillBundle) -> SkillVersion:
        return SkillVersion(
            id=ids.new_id("skver"),
            created_at=self._clock(),
            description=bundle.description,
            name=bundle.name,
            skill_id=skill_id,
            content_hash=bundle.content_hash,
        )

    async def _version_rows(self, tenant: str, skill_id: str) -> list[RecordRow]:
        """The newest first."""
        rows: list[RecordRow] = []
        query = RecordQuery(
            kind=self._versions.kind, tenant=tenant, parent=skill_id, limit=_MAX_VERSIONS_READ
        )
        while more := await self._versions.records.list(query):
            rows += more
            query = dataclasses.replace(query, after=more[-1])
        return rows


def _version_index_columns(version: SkillVersion) -> IndexColumns:
    return IndexColumns(parent=version.skill_id)
