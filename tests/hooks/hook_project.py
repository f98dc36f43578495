"""A project with hooks in it, and a runner for them: what the tests of hooks play on."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mainspring.capabilities.hooks import (
    HandlerPorts,
    HookConfig,
    HookEnvironment,
    HookPolicy,
    HookRunner,
    HookSession,
    Scope,
    parse_hooks,
)
from mainspring.core.hook import HookEvent, HookEventName

PUBLISHED = Path(__file__).parent / "published"
ALIASES = {"Bash": "bash", "Edit": "edit", "Write": "write", "Agent": "agent", "Task": "agent"}


def configured(
    event: str, *handlers: Mapping[str, object], matcher: str = "", scope: Scope = "user"
) -> HookConfig:
    raw = {"hooks": {event: [{"matcher": matcher, "hooks": list(handlers)}]}}
    return parse_hooks(raw, scope=scope, source=f"{scope}/settings.json")


def command(text: str, **more: object) -> dict[str, object]:
    return {"type": "command", "command": text, **more}


def before(tool: str = "bash", **given: object) -> HookEvent:
    return HookEvent(
        event="PreToolUse",
        subject=tool,
        fields={"tool_name": tool, "tool_input": given},
        tool_use_id="toolu_1",
    )


def at(event: HookEventName, subject: str = "", **fields: object) -> HookEvent:
    return HookEvent(event=event, subject=subject, fields=fields)


@dataclass
class Project:
    """A folder with settings, and a folder of programs that its hooks find on their PATH."""

    root: Path
    bin: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def at(cls, place: Path) -> "Project":
        project = cls(root=place / "project", bin=place / "bin")
        project.root.mkdir()
        project.bin.mkdir()
        (project.bin / "python3").symlink_to(os.path.realpath(sys.executable))
        project.environment = {"PATH": f"{project.bin}:/usr/bin:/bin", "HOME": str(place)}
        return project

    def install(self, name: str, scope: Scope = "project") -> HookConfig:
        """Put a published settings file and its scripts where their author means them to be."""
        hooks = self.root / ".claude/hooks"
        hooks.mkdir(parents=True)
        for file in (PUBLISHED / name).iterdir():
            if file.name != "settings.json":
                target = hooks / file.name.removesuffix(".txt")
                shutil.copy(file, target)
                target.chmod(0o755)
        settings = self.root / ".claude/settings.json"
        shutil.copy(PUBLISHED / name / "settings.json", settings)
        raw = msgspec.json.decode(settings.read_bytes(), type=dict[str, object])
        return parse_hooks(raw, scope=scope, source=str(settings))

    def program(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def runner(
        self,
        *configs: HookConfig,
        policy: HookPolicy | None = None,
        session: HookSession | None = None,
        ports: HandlerPorts | None = None,
    ) -> HookRunner:
        return HookRunner(
            configs,
            session or HookSession(fields=self.told),
            ports or HandlerPorts(environment=self.surroundings()),
            policy=policy or HookPolicy(aliases=ALIASES),
        )

    def surroundings(self) -> HookEnvironment:
        return HookEnvironment(project=self.root, environment=self.environment)

    def told(self) -> dict[str, object]:
        return {
            "session_id": "sesn_1",
            "transcript_path": str(self.root / "log.jsonl"),
            "cwd": str(self.root),
            "permission_mode": "default",
        }
