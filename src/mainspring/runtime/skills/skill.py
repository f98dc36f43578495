"""A skill, as its file describes it; a slash command is one too. A value: using it is not ours."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from mainspring.core.model import Effort
from mainspring.runtime.definition_files.scopes import Scope


class Skill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """What it is called by: `plugin:name` if a plugin brings it."""
    description: str
    """What the model always sees of it, `when_to_use` included; cut at 1,536 characters."""
    file: str
    """Its text, absolute; empty if it comes from elsewhere than a disk."""
    folder: str
    """What it brings besides: scripts, references, assets. Absolute."""
    hash: str
    """Of the file, as it was when it was found."""
    contents: str = ""
    """Of all files in its folder, if somebody has vouched for them: it is used as long as they are
    what they were."""
    scope: Scope = "project"
    kind: Literal["skill", "command"] = "skill"
    is_trusted: bool = False
    """Somebody has seen it as it is now: only then do `allowed_tools`, `hooks` and commands in its
    text count. Otherwise it is content, nothing more."""
    for_model: bool = True
    """Whether the model may use it by itself (`disable-model-invocation`)."""
    is_listed: bool = True
    """Whether the model's list of skills has room for it. Decided once for a session, so that the
    prompt prefix stays stable; the rest are found with `skill_search`."""
    for_user: bool = True
    """Whether it can be called as `/name` (`user-invocable`)."""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    """Names of positional arguments: `$name`."""
    allowed_tools: tuple[str, ...] = ()
    """Permission rules that allow, until the turn ends."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    effort: Effort | None = None
    context: Literal["inline", "fork"] = "inline"
    """`fork`: it runs as a subagent, and only what it says last comes back."""
    agent: str | None = None
    """Which type of subagent, with `fork`."""
    is_background: bool = False
    paths: tuple[str, ...] = ()
    """Globs: it is brought up when such a file is read."""
    hooks: dict[str, object] = field(default_factory=dict[str, object])
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Keys of its frontmatter that we know nothing of, as they are."""
