"""The workflows that a tenant can run: those that an operator has stored, each with its commands
and scripts, and for the tenant of the folder that the service runs in, the trusted ones there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.log.records import Records
from mainspring.runtime.workflows.format.definition import InputSpec, Node
from mainspring.runtime.workflows.format.structure import execution_layers
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.validation import WorkflowReport, check_workflow
from mainspring.runtime.workflows.workflow_files import Trust, WorkflowFile, WorkflowFiles
from mainspring.service.access.principal import Principal
from mainspring.service.schedules.local_schedule import TENANT
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository
from mainspring.service.views.local_records import LOCAL_TENANT

KIND = "workflow"
_MAX_TEXT = 500_000
"""Characters of all files of one workflow: more than people review."""
_SUFFIXES = frozenset((".yaml", ".yml", ".md", ".py", ".ts", ".js"))
_PAGE = 100  # workflows read at once
FilePath = Annotated[str, Meta(min_length=1, max_length=200)]
FileText = Annotated[str, Meta(max_length=_MAX_TEXT)]


class PutWorkflow(Struct, frozen=True, kw_only=True):
    """A workflow with the files that it uses, by their paths in a project: `workflows/NAME.yaml`,
    `workflows/commands/NAME.md`, `workflows/scripts/NAME.py`."""

    files: Annotated[dict[FilePath, FileText], Meta(min_length=1, max_length=200)]
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The workflow to run, if the files have several; the others are those that it calls."""


class StoredWorkflow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    version: int
    files: RunFiles
    created_at: datetime
    updated_at: datetime
    stored_by: str
    archived_at: datetime | None = None


class WorkflowNode(Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    depends_on: tuple[str, ...]
    description: str | None = None
    when: str | None = None
    trigger_rule: str | None = None
    nodes: tuple[WorkflowNode, ...] = ()
    """Those of a group."""


class WorkflowObject(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    source: Literal["stored", "folder"]
    trust: Trust
    """Only `trusted` and `user` workflows can run."""
    version: int
    hash: str
    inputs: dict[str, InputSpec]
    nodes: tuple[WorkflowNode, ...]
    execution_layers: tuple[tuple[str, ...], ...]
    updated_at: datetime | None = None
    archived_at: datetime | None = None
    type: Literal["workflow"] = "workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflows:
    records: Records
    folder: Path
    home: Path
    clock: Clock = clocks.now

    @property
    def _repository(self) -> Repository[StoredWorkflow]:
        return Repository(
            self.records, KIND, StoredWorkflow, columns=_index_columns, clock=self.clock
        )

    async def put(self, principal: Principal, request: PutWorkflow) -> WorkflowObject:
        """Store a workflow, or a new version of it. Who stores it trusts it, as it is.

        Raises: InvalidInput: it is not valid.
        """
        files, reports = await to_thread.run_sync(_read_files, request)
        problems = [issue for item in reports for issue in item.issues if issue.level == "error"]
        if files is None or problems:
            first = problems[0].message if problems else "there is no workflow in these files"
            raise InvalidInput(f"files: {first}")
        now, id_ = self.clock(), _stored_id(principal.tenant, files.main)
        new = StoredWorkflow(
            id=id_,
            name=files.main,
            version=1,
            files=files,
            created_at=now,
            updated_at=now,
            stored_by=principal.sender.id,
        )

        def change(current: StoredWorkflow) -> StoredWorkflow:
            if current.files.hash == files.hash and current.archived_at is None:
                return current
            return replace(new, version=current.version + 1, created_at=current.created_at)

        if await self._repository.find(principal.tenant, id_) is None:
            stored = await self._repository.save(principal.tenant, new)
        else:
            stored = await self._repository.update(principal.tenant, id_, change)
        return _stored_object(stored)

    async def check(self, request: PutWorkflow) -> list[WorkflowReport]:
        """Check workflows without storing them."""
        _, reports = await to_thread.run_sync(_read_files, request)
        return reports

    async def page(self, tenant: str, query: ListQuery) -> Page[WorkflowObject]:
        """The first page begins with those of the folder."""
        page = (await self._repository.page(tenant, query)).map(_stored_object)
        if query.page is not None:
            return page
        own = await to_thread.run_sync(self._folder_objects, tenant)
        return Page(data=[*own, *page.data], next_page=page.next_page)

    async def get(self, tenant: str, workflow_id: str) -> WorkflowObject:
        """Raises: NotFound."""
        stored = await self._repository.find(tenant, workflow_id)
        if stored is not None:
            return _stored_object(stored)
        for item in await to_thread.run_sync(self._folder_objects, tenant):
            if item.id == workflow_id:
                return item
        raise NotFound(KIND, workflow_id)

    async def archive(self, tenant: str, workflow_id: str) -> WorkflowObject:
        """An archived workflow starts no more runs. Raises: NotFound."""
        now = self.clock()
        stored = await self._repository.update(
            tenant,
            workflow_id,
            lambda item: replace(item, archived_at=item.archived_at or now),
        )
        return _stored_object(stored)

    async def run_files(self, tenant: str, name: str) -> RunFiles:
        """The files of a workflow that may run, by its name or id.

        Raises: NotFound. InvalidInput: it is archived, not valid or not trusted.
        """
        for id_ in (name, _stored_id(tenant, name)):
            stored = await self._repository.find(tenant, id_)
            if stored is not None:
                if stored.archived_at is not None:
                    raise InvalidInput(f"workflow {stored.name} is archived")
                return stored.files
        if not _has_folder(tenant):
            raise NotFound(KIND, name)
        return await to_thread.run_sync(self._trusted, name)

    def _trusted(self, name: str) -> RunFiles:
        files = self._files
        for item in files.all():
            if name in (item.name, item.path.stem, _folder_id(item.name)):
                collected = files.collect(files.find(item.name))
                if files.trust(item, collected) not in ("user", "trusted"):
                    raise InvalidInput(
                        f"workflow {item.name} is not trusted as it is now:"
                        f" mainspring workflow trust {item.name}"
                    )
                return collected
        raise NotFound(KIND, name)

    @property
    def _files(self) -> WorkflowFiles:
        return WorkflowFiles(root=self.folder.absolute(), home=self.home)

    def _folder_objects(self, tenant: str) -> list[WorkflowObject]:
        files = self._files
        if not _has_folder(tenant):
            return []
        return [shown for item in files.all() if (shown := _folder_object(files, item))]


def _has_folder(tenant: str) -> bool:
    """Whether the workflows of the folder belong to a tenant."""
    return tenant in (TENANT, LOCAL_TENANT)


def _index_columns(workflow: StoredWorkflow) -> IndexColumns:
    return IndexColumns(is_archived=workflow.archived_at is not None, created=workflow.created_at)


def _stored_id(tenant: str, name: str) -> str:
    return ids.stable_id("wkfl", "stored", tenant, name)


def _folder_id(name: str) -> str:
    return ids.stable_id("wkfl", "folder", name)


def _stored_object(stored: StoredWorkflow) -> WorkflowObject:
    shown = _object(stored.files, source="stored", id_=stored.id, trust="trusted")
    return replace(
        shown,
        version=stored.version,
        updated_at=stored.updated_at,
        archived_at=stored.archived_at,
    )


def _folder_object(files: WorkflowFiles, item: WorkflowFile) -> WorkflowObject | None:
    """`None`: it is not valid; `POST /v1/mainspring/workflows/validate` says why."""
    if item.read.workflow is None:
        return None
    try:
        collected = files.collect(item)
    except (InvalidInput, NotFound):
        return None
    trust = files.trust(item, collected)
    return _object(collected, source="folder", id_=_folder_id(item.name), trust=trust)


def _object(
    files: RunFiles, *, source: Literal["stored", "folder"], id_: str, trust: Trust
) -> WorkflowObject:
    workflow = files.workflow(files.main)
    return WorkflowObject(
        id=id_,
        name=workflow.name,
        description=workflow.description,
        source=source,
        trust=trust,
        version=1,
        hash=files.hash,
        inputs=workflow.inputs,
        nodes=tuple(map(_node, workflow.nodes)),
        execution_layers=tuple(map(tuple, execution_layers(workflow.nodes))),
    )


def _node(node: Node) -> WorkflowNode:
    return WorkflowNode(
        id=node.id,
        kind=node.kind,
        depends_on=node.depends_on,
        description=node.description,
        when=node.when,
        trigger_rule=node.trigger_rule if node.depends_on else None,
        nodes=() if node.loop is None else tuple(map(_node, node.loop.nodes)),
    )


def _read_files(request: PutWorkflow) -> tuple[RunFiles | None, list[WorkflowReport]]:
    """Read the files as those of a project. Blocks."""
    if sum(map(len, request.files.values())) > _MAX_TEXT:
        raise InvalidInput(f"files: over {_MAX_TEXT} characters")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in request.files.items():
            place = root / _checked_path(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", errors="surrogatepass")
        files = WorkflowFiles(root=root, home=root / "home")
        found = files.all()
        reports = [check_workflow(files, item) for item in found]
        valid = [item for item in found if item.read.workflow is not None]
        if request.name is not None:
            valid = [item for item in valid if item.name == request.name]
        if len(valid) > 1:
            names = ", ".join(item.name for item in valid)
            raise InvalidInput(f"name: which of these workflows: {names}")
        if not valid or (len(valid) < len(found) and request.name is None):
            return None, reports
        return files.collect(valid[0]), reports


def _checked_path(path: str) -> PurePosixPath:
    """Raises: InvalidInput: it is not a path of a workflow's file in a project."""
    parts = path.split("/")
    is_clean = all(part.strip(".") and "\\" not in part and "\0" not in part for part in parts[1:])
    is_inside = parts[0] in ("workflows", ".archon") and len(parts) > 1
    if not is_clean or not is_inside or PurePosixPath(path).suffix not in _SUFFIXES:
        raise InvalidInput(f"files: {path!r} is not a file of workflows/ or .archon/")
    return PurePosixPath(path)
