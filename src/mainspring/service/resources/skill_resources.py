"""Skills that were uploaded, with every version of each: checked, packed into an archive and
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.ids import ExternalId, SkillId
from mainspring.log.records import RecordChange, RecordQuery, RecordRow, Records, Remove
from mainspring.runtime.packages.upload import LIMITS, PackageLimits, UploadedFile
from mainspring.service.resources.skill_archive import SkillBundle, pack_skill, read_skill_bundle
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

LATEST = "latest"
"""Names the newest version, whichever it is."""

_TRIES = 8
_MAX_VERSIONS_READ = 1000

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
    """SHA-256 of the paths and the contents of its files. Ours: the wire type has no such field."""
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
        self,
        records: Records,
        *,
        limits: PackageLimits = LIMITS,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self.limits = limits
        self._records = records
        self._skills = Repository(records, "skill", SkillObject, clock=clock)
        self._versions = Repository(
            records, "skill_version", SkillVersion, columns=_version_index_columns, clock=clock
        )
        self._clock = clock
        self._new_id = new_id

    async def create(
        self, tenant: str, uploads: Sequence[UploadedFile], display_name: str | None = None
    ) -> SkillObject:
        """Raises: InvalidInput, TooLarge."""
        bundle, archive = await self._read(uploads)
        version = self._version(self._new_id("skill"), bundle)
        skill = SkillObject(
            id=version.skill_id,
            created_at=version.created_at,
            updated_at=version.created_at,
            display_name=display_name or bundle.name,
            latest_version_id=version.id,
        )
        await self._records.write(
            self._skills.put_change(tenant, skill),
            self._versions.put_change(tenant, version, content=archive),
        )
        return skill

    async def get(self, tenant: str, skill_id: str) -> SkillObject:
        return await self._skills.get(tenant, skill_id)

    async def page(self, tenant: str, list_query: ListQuery) -> Page[SkillObject]:
        return await self._skills.page(tenant, list_query)

    async def delete(self, tenant: str, skill_id: str) -> None:
        """With all its versions. Raises: NotFound."""
        for _ in range(_TRIES):
            record = await self._skills.record(tenant, skill_id)
            gone = [
                Remove(record_row=all_version)
                for all_version in await self._all_versions(tenant, skill_id)
            ]
            if await self._written(Remove(record_row=record), *gone):
                return
        raise StaleVersion(f"skill {skill_id}: others kept changing it; try again")

    async def add_version(
        self, tenant: str, skill_id: str, uploads: Sequence[UploadedFile]
    ) -> SkillVersion:
        """Raises: NotFound, InvalidInput: the name is another one, TooLarge."""
        current = await self.version(tenant, skill_id, LATEST)
        bundle, archive = await self._read(uploads)
        if bundle.name != current.name:
            raise InvalidInput(
                f"SKILL.md: name: the skill is called {current.name}, and keeps that name;"
                f" make a new skill for {bundle.name}"
            )
        version = self._version(skill_id, bundle)
        for _ in range(_TRIES):
            record = await self._skills.record(tenant, skill_id)
            newest = replace(
                self._skills.read(record),
                latest_version_id=version.id,
                updated_at=version.created_at,
            )
            if await self._written(
                self._skills.replace_change(record, newest),
                self._versions.put_change(tenant, version, content=archive),
            ):
                return version
        raise StaleVersion(f"skill {skill_id}: others kept changing it; try again")

    async def version(self, tenant: str, skill_id: str, version_id: str) -> SkillVersion:
        """By its id, or the `latest`. Raises: NotFound."""
        skill = await self._skills.get(tenant, skill_id)
        if version_id == LATEST:
            version_id = skill.latest_version_id
        version = await self._versions.get(tenant, version_id)
        if version.skill_id != skill_id:
            raise NotFound("skill_version", version_id)
        return version

    async def versions(
        self, tenant: str, skill_id: str, *, limit: int = 20, page: str | None = None
    ) -> Page[SkillVersion]:
        """The newest first. Raises: NotFound."""
        await self._skills.get(tenant, skill_id)
        return await self._versions.page(tenant, ListQuery(parent=skill_id, limit=limit, page=page))

    async def archive(
        self, tenant: str, skill_id: str, version_id: str
    ) -> tuple[SkillVersion, bytes]:
        """A version with its files as a zip archive. Raises: NotFound."""
        version = await self.version(tenant, skill_id, version_id)
        return version, await self._records.content(self._versions.kind, version.id)

    async def delete_version(self, tenant: str, skill_id: str, version_id: str) -> SkillVersion:
        """Raises: NotFound, InvalidInput: it is the only one."""
        for _ in range(_TRIES):
            record = await self._skills.record(tenant, skill_id)
            version = await self.version(tenant, skill_id, version_id)
            left = [
                all_version
                for all_version in await self._all_versions(tenant, skill_id)
                if all_version.id != version.id
            ]
            if not left:
                raise InvalidInput(f"{version.id} is the only version; delete the skill instead")
            skill = replace(
                self._skills.read(record),
                latest_version_id=left[0].id,
                updated_at=self._clock(),
            )
            gone = Remove(record_row=await self._versions.record(tenant, version.id))
            if await self._written(self._skills.replace_change(record, skill), gone):
                return version
        raise StaleVersion(f"skill {skill_id}: others kept changing it; try again")

    async def pin(self, tenant: str, skill: AgentSkill) -> AgentSkill:
        """With the id of the version that is the latest now."""
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
                raise InvalidInput(f"{where}: {skill.skill_id} is there already")
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
            id=self._new_id("skver"),
            created_at=self._clock(),
            description=bundle.description,
            name=bundle.name,
            skill_id=skill_id,
            content_hash=bundle.content_hash,
        )

    async def _all_versions(self, tenant: str, skill_id: str) -> list[RecordRow]:
        """The newest first."""
        found: list[RecordRow] = []
        while True:
            more = await self._records.list(
                RecordQuery(
                    kind=self._versions.kind,
                    tenant=tenant,
                    parent=skill_id,
                    after=found[-1] if found else None,
                    limit=_MAX_VERSIONS_READ,
                )
            )
            found += more
            if len(more) < _MAX_VERSIONS_READ:
                return found

    async def _written(self, *changes: RecordChange) -> bool:
        """Not if something was changed meanwhile: look again, then."""
        try:
            await self._records.write(*changes)
        except (StaleVersion, NotFound):
            return False
        return True


def _version_index_columns(version: SkillVersion) -> IndexColumns:
    return IndexColumns(parent=version.skill_id)
