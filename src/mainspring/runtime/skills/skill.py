"""A skill or slash command as its file describes it: a value."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from mainspring.core.model import Effort
from mainspring.runtime.definition_files.scopes import Scope


class Skill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """`plugin:name` if it is part of a plugin."""
    description: str
    """The description that the model always sees, including `when_to_use`; at most 1,536
    characters."""
    file: str
    """The path of its text, absolute; empty if it does not come from a disk."""
    folder: str
    """The folder of its scripts, references and assets; absolute."""
    hash: str
    """The hash of the file when it was discovered."""
    contents: str = ""
    """The hash of all files in its folder when somebody trusted them; the skill can be used only
    while they are unchanged."""
    scope: Scope = "project"
    kind: Literal["skill", "command"] = "skill"
    is_trusted: bool = False
    """Whether somebody trusts it in its current state. Only then do `allowed_tools`, `hooks` and
    the commands in its text count; otherwise it is only text."""
    for_model: bool = True
    """Whether the model may use it by itself (`disable-model-invocation`)."""
    is_listed: bool = True
    """Whether the model's list of skills has room for it. Decided once for a session, so that the
    prompt prefix stays stable; the rest are found with `skill_search`."""
    for_user: bool = True
    """Whether users can call it as `/name` (`user-invocable`)."""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    """The names of positional arguments: `$name`."""
    allowed_tools: tuple[str, ...] = ()
    """Rules that allow calls until the turn ends."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    effort: Effort | None = None
    context: Literal["inline", "fork"] = "inline"
    """`fork`: it runs as a subagent, and only its last message comes back."""
    agent: str | None = None
    """The type of subagent, with `fork`."""
    is_background: bool = False
    paths: tuple[str, ...] = ()
    """Globs: the skill is offered when such a file is read."""
    hooks: dict[str, object] = field(default_factory=dict[str, object])
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Unknown keys of the frontmatter, unchanged."""
