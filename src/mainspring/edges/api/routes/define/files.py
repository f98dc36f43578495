"""`/v1/files`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from mainspring.core.errors import Forbidden, InvalidInput
from mainspring.core.ids import FileId, SessionId
from mainspring.edges.api.file_transfer import MULTIPART, Form, UploadLimiter, attachment, read_form
from mainspring.edges.api.route import ApiCall, Empty, list_query, route
from mainspring.service.resources.file_resources import File, Files, Lifetime, NewFile
from mainspring.service.storage.pagination import Limit, Page

_MAX_PARTS = 8  # of a multipart body, which has one file and a few fields


class ListFiles(Struct, frozen=True, kw_only=True):
    ids: Annotated[tuple[FileId, ...], Meta(max_length=1000)] | None = None
    limit: Limit | None = None
    page: str | None = None
    scope_id: SessionId | None = None


class FileForm(Struct, frozen=True, kw_only=True):
    file: bytes
    expires_in_seconds: Lifetime | None = None


class DeletedFile(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["file_deleted"] = "file_deleted"


@dataclass(frozen=True, slots=True)
class FileRoutes:
    files: Files
    upload_limiter: UploadLimiter = field(default_factory=UploadLimiter)

    @route(
        "POST /v1/files",
        "Upload a file",
        body=FileForm,
        role="user",
        for_agent_keys=True,
        upload=MULTIPART,
    )
    async def upload(self, call: ApiCall[Empty, Empty]) -> File:
        max_bytes = self.files.max_bytes
        async with self.upload_limiter.slot(call.tenant):
            form = await read_form(call.request, max_bytes=max_bytes, max_parts=_MAX_PARTS)
            new = _new_file(form)
            return await call.once(form.fingerprint, lambda: self.files.create(call.tenant, new))

    @route("GET /v1/files", "List files", for_agent_keys=True)
    async def list(self, call: ApiCall[ListFiles, Empty]) -> Page[File]:
        query = call.query
        if call.who.agent_id is not None and query.scope_id is None and query.ids is None:
            raise Forbidden("scope_id: required, because this key is limited to one agent")
        if query.ids is None:
            listing = list_query(query, limit=query.limit or 20, label=query.scope_id)
            return await self.files.page(call.tenant, listing)
        if query.page is not None or query.limit is not None:
            raise InvalidInput("ids: cannot be combined with page or limit")
        if len(set(query.ids)) > 100:
            raise InvalidInput("ids: at most 100")
        files = await self.files.get_many(call.tenant, query.ids)
        return Page(data=[file for file in files if _is_in_scope(file, query.scope_id)])

    @route("GET /v1/files/{file_id}", "Get the metadata of a file", for_agent_keys=True)
    async def get(self, call: ApiCall[Empty, Empty]) -> File:
        return await self.files.get(call.tenant, call["file_id"])

    @route(
        "GET /v1/files/{file_id}/content", "Download a file", for_agent_keys=True, media_type="*/*"
    )
    async def download(self, call: ApiCall[Empty, Empty]) -> web.Response:
        file, content = await self.files.content(call.tenant, call["file_id"])
        return attachment(content, filename=file.filename, media_type=file.mime_type)

    @route("DELETE /v1/files/{file_id}", "Delete a file", role="user")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedFile:
        await self.files.delete(call.tenant, call["file_id"])
        return DeletedFile(id=call["file_id"])


def _is_in_scope(file: File, scope_id: str | None) -> bool:
    return scope_id is None or (file.scope is not None and file.scope.id == scope_id)


def _new_file(form: Form) -> NewFile:
    match form.files("file"):
        case [part]:
            return NewFile(
                content=part.content,
                filename=part.filename,
                mime_type=part.media_type,
                expires_in_seconds=_parse_lifetime(form.field("expires_in_seconds")),
            )
        case _:
            raise InvalidInput("file: send exactly one file, in the field `file`")


def _parse_lifetime(seconds: str | None) -> int | None:
    try:
        return msgspec.convert(seconds, Lifetime | None, strict=False)
    except msgspec.ValidationError:
        raise InvalidInput("expires_in_seconds: must be a number from 3600 to 7776000") from None
