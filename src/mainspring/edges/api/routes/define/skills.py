"""`/v1/skills`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import Struct, field

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.file_transfer import MULTIPART, Form, attachment, read_form
from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.runtime.packages.package_contents import UploadedFile
from mainspring.service.resources.skill_resources import (
    DisplayName,
    SkillObject,
    Skills,
    SkillVersion,
)
from mainspring.service.storage.pagination import Page

_ZIP = "application/zip"


class ListSkills(PageQuery, frozen=True, kw_only=True):
    source: str | None = None


class VersionForm(Struct, frozen=True, kw_only=True):
    files: tuple[bytes, ...] = field(name="files[]")
    """Files whose names are their paths, such as `my-skill/SKILL.md`; or one zip archive."""


class SkillForm(VersionForm, frozen=True, kw_only=True):
    display_name: DisplayName | None = None


class DeletedSkill(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["skill_deleted"] = "skill_deleted"


class DeletedSkillVersion(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["skill_version_deleted"] = "skill_version_deleted"


@dataclass(frozen=True, slots=True)
class SkillRoutes:
    skills: Skills

    @route("POST /v1/skills", "Upload a skill", body=SkillForm, upload=MULTIPART)
    async def create(self, call: ApiCall[Empty, Empty]) -> SkillObject:
        form = await self._form(call.request)
        name = _display_name(form.field("display_name"))
        uploads = _uploads(form)
        return await call.once(
            form.fingerprint, lambda: self.skills.create(call.tenant, uploads, name)
        )

    @route("GET /v1/skills", "List skills")
    async def list(self, call: ApiCall[ListSkills, Empty]) -> Page[SkillObject]:
        if call.query.source not in (None, "custom"):
            return Page(data=())
        return await self.skills.page(call.tenant, list_query(call.query))

    @route("GET /v1/skills/{skill_id}", "Get a skill")
    async def get(self, call: ApiCall[Empty, Empty]) -> SkillObject:
        return await self.skills.get(call.tenant, call["skill_id"])

    @route("DELETE /v1/skills/{skill_id}", "Delete a skill with all its versions")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedSkill:
        await self.skills.delete(call.tenant, call["skill_id"])
        return DeletedSkill(id=call["skill_id"])

    @route(
        "POST /v1/skills/{skill_id}/versions",
        "Upload a new version of a skill",
        body=VersionForm,
        upload=MULTIPART,
    )
    async def create_version(self, call: ApiCall[Empty, Empty]) -> SkillVersion:
        form = await self._form(call.request)
        uploads = _uploads(form)
        return await call.once(
            form.fingerprint,
            lambda: self.skills.add_version(call.tenant, call["skill_id"], uploads),
        )

    @route("GET /v1/skills/{skill_id}/versions", "List the versions of a skill")
    async def list_versions(self, call: ApiCall[PageQuery, Empty]) -> Page[SkillVersion]:
        return await self.skills.versions(call.tenant, call["skill_id"], list_query(call.query))

    @route(
        "GET /v1/skills/{skill_id}/versions/{version}",
        "Get a version of a skill, or the `latest`",
        for_worker_keys=True,
    )
    async def get_version(self, call: ApiCall[Empty, Empty]) -> SkillVersion:
        return await self.skills.version(call.tenant, call["skill_id"], call["version"])

    @route(
        "GET /v1/skills/{skill_id}/versions/{version}/content",
        "Download the files of a version as a zip archive",
        for_worker_keys=True,
        media_type=_ZIP,
    )
    async def download(self, call: ApiCall[Empty, Empty]) -> web.Response:
        version, archive = await self.skills.archive(call.tenant, call["skill_id"], call["version"])
        return attachment(archive, filename=f"{version.name}.zip", media_type=_ZIP)

    @route("DELETE /v1/skills/{skill_id}/versions/{version}", "Delete a version of a skill")
    async def delete_version(self, call: ApiCall[Empty, Empty]) -> DeletedSkillVersion:
        deleted = await self.skills.delete_version(call.tenant, call["skill_id"], call["version"])
        return DeletedSkillVersion(id=deleted.id)

    async def _form(self, request: web.Request) -> Form:
        limits = self.skills.limits
        return await read_form(request, max_bytes=limits.max_bytes, max_parts=limits.max_files + 1)


def _uploads(form: Form) -> list[UploadedFile]:
    parts = form.files("files")
    if not parts:
        raise InvalidInput("files: send the files of the skill in the field `files[]`")
    return [UploadedFile(path=part.filename or "", content=part.content) for part in parts]


def _display_name(name: str | None) -> str | None:
    try:
        return msgspec.convert(name or None, DisplayName | None)
    except msgspec.ValidationError:
        raise InvalidInput("display_name: one line of at most 255 characters") from None
