"""Skills over MCP: their files are resources (`skill://name/SKILL.md`), and skills that users may
invoke are prompts. Commands in their texts are not run here.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from anyio import to_thread

from mainspring.capabilities.mcp.protocol.messages import (
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptResult,
    Resource,
    ResourceContent,
    SkillEntry,
    SkillFile,
    Text,
)
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import no_prompt
from mainspring.capabilities.mcp.server.refusals import no_resource
from mainspring.core.errors import MainspringError
from mainspring.harness.context.frontmatter import read_frontmatter
from mainspring.runtime.packages.package_contents import ContentItem, read_contents
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_body import load_body, refusing_runner, run_embedded_commands
from mainspring.runtime.skills.substitution import SkillFacts, SkillSubstitution

_SCHEME = "skill://"
_NOT_RUN = "commands of a skill run only in a session"


class SkillFeatures:
    def __init__(self, read_skills: Callable[[], Awaitable[Sequence[Skill]]]) -> None:
        self._read_skills = read_skills

    async def resources(self) -> Sequence[Resource]:
        return [
            Resource(
                uri=_uri(skill, item.path),
                name=skill.name if item.path == "SKILL.md" else f"{skill.name}/{item.path}",
                description=skill.description if item.path == "SKILL.md" else None,
                mime_type=_media_type(item.path),
            )
            for skill in await self._read_skills()
            for item in await to_thread.run_sync(_files, skill)
        ]

    async def skills(self) -> Sequence[SkillEntry]:
        """The skills whose name in the manifest is the one in their URI."""
        entries = [
            await to_thread.run_sync(_entry, skill)
            for skill in await self._read_skills()
            if skill.for_model
        ]
        return [entry for entry in entries if entry is not None]

    async def read_resource(self, uri: str, exchange: Exchange) -> Sequence[ResourceContent]:
        """Only listed files can be read: the path of a client is never used on the disk."""
        for skill in await self._read_skills():
            if not uri.startswith(_uri(skill, "")):
                continue
            for item in await to_thread.run_sync(_files, skill):
                if item.path == unquote(uri.removeprefix(_uri(skill, ""))):
                    return [_content(uri, item)]
        raise no_resource(uri, exchange.client.era)

    async def prompts(self) -> Sequence[Prompt]:
        return [
            Prompt(name=skill.name, description=skill.description, arguments=_arguments(skill))
            for skill in await self._read_skills()
            if skill.for_user
        ]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], exchange: Exchange
    ) -> PromptResult:
        del exchange
        skills = {skill.name: skill for skill in await self._read_skills() if skill.for_user}
        if (skill := skills.get(name)) is None:
            raise no_prompt(name)
        values = [arguments.get(part.name, "") for part in _arguments(skill) or ()]
        text = " ".join(_quoted(value) for value in values) if skill.arguments else values[0]
        published = msgspec.structs.replace(skill, folder=_uri(skill, "").rstrip("/"))
        substitution = SkillSubstitution(text, published, SkillFacts(session_id=""))
        body = await load_body(skill)
        text_body = await run_embedded_commands(body, substitution, refusing_runner(_NOT_RUN))
        message = PromptMessage(
            role="user", content=Text(text_body.strip() + substitution.unused_arguments())
        )
        return PromptResult(messages=[message], description=skill.description)


def _uri(skill: Skill, path: str) -> str:
    return f"{_SCHEME}{quote(skill.name, safe='')}/{quote(path)}"


def _files(skill: Skill) -> list[ContentItem]:
    """The files of a skill, the manifest first; none if it cannot be read. Blocks."""
    if skill.kind != "skill" or not skill.file:
        return []
    try:
        items = read_contents(Path(skill.folder))
    except MainspringError:
        return []
    plain = [
        item
        for item in items
        if item.link is None
        and not item.is_special
        and not any(part.startswith(".") for part in item.path.split("/"))
    ]
    return sorted(plain, key=lambda item: (item.path != "SKILL.md", item.path))


def _entry(skill: Skill) -> SkillEntry | None:
    """`None` if the skill cannot be published. Blocks."""
    items = _files(skill)
    if not items or items[0].path != "SKILL.md":
        return None
    head = read_frontmatter(items[0].content.decode("utf-8", "replace")).fields
    if head.get("name") != skill.name:
        return None
    files = [
        SkillFile(
            uri=_uri(skill, item.path),
            digest=f"sha256:{sha256(item.content).hexdigest()}",
            size=len(item.content),
        )
        for item in items
    ]
    return SkillEntry(uri=_uri(skill, "SKILL.md"), frontmatter=head, resources=files)


def _content(uri: str, item: ContentItem) -> ResourceContent:
    media_type = _media_type(item.path)
    try:
        return ResourceContent(uri=uri, mime_type=media_type, text=item.content.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(item.content).decode("ascii")
        return ResourceContent(uri=uri, mime_type=media_type, blob=blob)


def _media_type(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _arguments(skill: Skill) -> list[PromptArgument]:
    if skill.arguments:
        return [PromptArgument(name=name) for name in skill.arguments]
    return [PromptArgument(name="arguments", description=skill.argument_hint or None)]


def _quoted(value: str) -> str:
    """One word of the arguments, as a shell splits them."""
    return "'" + value.replace("'", "'\"'\"'") + "'"
