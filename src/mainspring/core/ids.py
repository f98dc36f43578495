"""Identifiers: a prefix that names the kind, then 32 digits that sort by creation time."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Annotated, TypeAlias

from msgspec import Meta

KIND = "id"
"""Metadata key of an id type: the kind of object that it identifies."""

MAY_BE_GONE = "may_be_gone"
"""Metadata key of an id type: the object may have been deleted."""

AgentId: TypeAlias = Annotated[str, Meta(extra={KIND: "agent"})]
FormerAgentId: TypeAlias = Annotated[str, Meta(extra={KIND: "agent", MAY_BE_GONE: True})]
EnvironmentId: TypeAlias = Annotated[str, Meta(extra={KIND: "environment"})]
SessionId: TypeAlias = Annotated[str, Meta(extra={KIND: "session"})]
ThreadId: TypeAlias = Annotated[str, Meta(extra={KIND: "thread"})]
ToolUseId: TypeAlias = Annotated[str, Meta(extra={KIND: "tool_use"})]
FileId: TypeAlias = Annotated[str, Meta(extra={KIND: "file"})]
VaultId: TypeAlias = Annotated[str, Meta(extra={KIND: "vault"})]
MemoryStoreId: TypeAlias = Annotated[str, Meta(extra={KIND: "memory_store"})]
MemoryId: TypeAlias = Annotated[str, Meta(extra={KIND: "memory"})]
SkillId: TypeAlias = Annotated[str, Meta(extra={KIND: "skill"})]
DeploymentId: TypeAlias = Annotated[str, Meta(extra={KIND: "deployment"})]
ApprovalId: TypeAlias = Annotated[str, Meta(extra={KIND: "approval"})]
KeyId: TypeAlias = Annotated[str, Meta(extra={KIND: "key"})]
TenantId: TypeAlias = Annotated[str, Meta(extra={KIND: "tenant"})]
ModelId: TypeAlias = Annotated[str, Meta(extra={KIND: "model"})]
ExternalId: TypeAlias = Annotated[str, Meta(extra={KIND: "external"})]
"""An id of another system, such as an OAuth client or a skill of the model provider."""
GrantedId: TypeAlias = Annotated[str, Meta(extra={KIND: "granted"})]
"""The id of any object that a key can be granted access to."""

SESSION = "sesn"
THREAD = "sthr"
EVENT = "sevt"
WORKER = "wrkr"
REQUEST = "mreq"
RESERVATION = "rsrv"


def new_id(prefix: str) -> str:
    """`sesn_` and 32 hexadecimal digits: 48 bits of milliseconds, then 80 random bits."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def stable_id(prefix: str, *parts: str) -> str:
    """A deterministic id: the same parts give the same id."""
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return f"{prefix}_{digest[:32]}"
