"""Skills of the service's sessions: what was uploaded, as folders beside each one's workspace.

Not in it: programs of the session may read and run what is there, and change nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from msgspec.structs import replace

from mainspring.core.errors import NotFound
from mainspring.runtime.definition_files.scopes import PartLocation
from mainspring.runtime.packages.upload import LIMITS, MANIFEST, check_files, unpack_archive
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_file import read_skill
from mainspring.service.resources.environments import SelfHostedConfig
from mainspring.service.resources.skill_resources import AgentSkill, CustomSkill, Skills
from mainspring.service.sessions.dependencies import ResolvedAgent
from mainspring.service.sessions.session_agent import skills_of
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.wiring.agent_mapper import SessionSpec, map_agent


@dataclass(frozen=True, slots=True)
class SessionSkills:
    workspaces: Path
    skills: Skills

    async def of(self, tenant: str, session: SessionRecord) -> dict[AgentSkill, Skill]:
        """Those that are to be had, of all that its agent has and whom it may call. What a session
        has got once it keeps, whatever becomes of the upload."""
        place = skills_folder(self.workspaces / session.id)
        is_remote = isinstance(session.environment, SelfHostedConfig)
        found: dict[AgentSkill, Skill] = {}
        for wanted in skills_of(session.agent):
            if isinstance(wanted, CustomSkill):
                skill = await self._unpacked(tenant, place, wanted)
                if skill is not None:
                    found[wanted] = _as_client_skill(skill) if is_remote else skill
        return found

    async def actor(self, tenant: str, session: SessionRecord) -> ResolvedAgent:
        """Who runs a session, with its skills."""
        workspace = self.workspaces / session.id
        part = SessionSpec(
            agent=session.agent,
            environment=session.environment,
            workspace=workspace,
            skills=await self.of(tenant, session),
        )
        return ResolvedAgent(
            agent=map_agent(part), workspace="" if part.is_remote else str(workspace)
        )

    async def _unpacked(self, tenant: str, place: Path, wanted: CustomSkill) -> Skill | None:
        folder = place / f"{wanted.skill_id}-{wanted.version}"
        if not await to_thread.run_sync(folder.is_dir):
            try:
                _, archive = await self.skills.archive(tenant, wanted.skill_id, wanted.version)
            except NotFound:
                return None
            await to_thread.run_sync(_unpack, archive, folder)
        return await to_thread.run_sync(_read_unpacked, folder)


def skills_folder(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}-skills")


def _as_client_skill(skill: Skill) -> Skill:
    """A worker of the client's own has put its files there."""
    return replace(skill, folder=f"skills/{Path(skill.folder).name}")


def _unpack(archive: bytes, folder: Path) -> None:
    """All of it, or nothing."""
    files = check_files(list(unpack_archive(folder.name, archive, LIMITS)), LIMITS)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="unpacking-", dir=folder.parent))
    try:
        fresh.chmod(0o755)  # a sandbox that has a user of its own must get in
        for path, upload in files.items():
            file = fresh / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(upload.content)
            file.chmod(0o755 if upload.is_executable else 0o644)
        with suppress(OSError):  # another worker was as quick
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _read_unpacked(folder: Path) -> Skill | None:
    """It is content, whoever has uploaded it: nobody has vouched for what it would allow."""
    for file in sorted(folder.glob(f"*/{MANIFEST}")):
        skill, _ = read_skill(
            file, PartLocation(folder, "project"), f"{file.parent.name}/{MANIFEST}"
        )
        return skill
    return None
