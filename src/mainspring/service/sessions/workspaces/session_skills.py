"""Uploaded skills of the service's sessions, unpacked beside each session's workspace.

Programs of the session may read and run these files, but not change them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from msgspec.structs import replace

from mainspring.core.errors import NotFound
from mainspring.core.tool import Tool
from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.packages.package_contents import (
    LIMITS,
    MANIFEST,
    check_files,
    unpack_archive,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_file import read_skill
from mainspring.service.resources.environments import SelfHostedConfig
from mainspring.service.resources.skill_resources import AgentSkill, CustomSkill, Skills
from mainspring.service.sessions.agent_mapper import SessionSpec, map_agent
from mainspring.service.sessions.dependencies import ResolvedAgent
from mainspring.service.sessions.session_agent import skills_of
from mainspring.service.sessions.session_record import SessionRecord


@dataclass(frozen=True, slots=True)
class SessionSkills:
    workspaces: Path
    skills: Skills
    client_tools: Callable[[Collection[str]], Sequence[Tool]]

    async def of(self, tenant: str, session: SessionRecord) -> dict[AgentSkill, Skill]:
        """The available skills of a session's agent and of the agents that it may call. A session
        keeps its skills even if the uploads are deleted."""
        place = skills_folder(self.workspaces / session.workspace_name)
        is_remote = isinstance(session.environment, SelfHostedConfig)
        available: dict[AgentSkill, Skill] = {}
        for reference in skills_of(session.agent):
            if isinstance(reference, CustomSkill):
                skill = await self._unpacked(tenant, place, reference)
                if skill is not None:
                    available[reference] = _as_client_skill(skill) if is_remote else skill
        return available

    async def actor(self, tenant: str, session: SessionRecord) -> ResolvedAgent:
        """The agent of a session, with its skills."""
        workspace = self.workspaces / session.workspace_name
        part = SessionSpec(
            agent=session.agent,
            environment=session.environment,
            workspace=workspace,
            client_tools=self.client_tools,
            skills=await self.of(tenant, session),
        )
        return ResolvedAgent(
            agent=map_agent(part), workspace="" if part.is_remote else str(workspace)
        )

    async def _unpacked(self, tenant: str, place: Path, reference: CustomSkill) -> Skill | None:
        folder = place / f"{reference.skill_id}-{reference.version}"
        if not await to_thread.run_sync(folder.is_dir):
            try:
                _, archive = await self.skills.archive(
                    tenant, reference.skill_id, reference.version
                )
            except NotFound:
                return None
            await to_thread.run_sync(_unpack, archive, folder)
        return await to_thread.run_sync(_read_unpacked, folder)


def skills_folder(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}-skills")


def _as_client_skill(skill: Skill) -> Skill:
    """The skill with the folder in which a client's own worker puts its files."""
    return replace(skill, folder=f"skills/{Path(skill.folder).name}")


def _unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive atomically."""
    files = check_files(list(unpack_archive(folder.name, archive, LIMITS)), LIMITS)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="unpacking-", dir=folder.parent))
    try:
        fresh.chmod(0o755)  # a sandbox with its own user needs access
        for path, upload in files.items():
            file = fresh / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(upload.content)
            file.chmod(0o755 if upload.is_executable else 0o644)
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another worker was faster
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _read_unpacked(folder: Path) -> Skill | None:
    """Read a skill as untrusted content: permissions that it requests are not granted."""
    for file in sorted(folder.glob(f"*/{MANIFEST}")):
        skill, _ = read_skill(
            file, PartLocation(folder, "project"), f"{file.parent.name}/{MANIFEST}"
        )
        return skill
    return None
