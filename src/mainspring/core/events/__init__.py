"""All events of the log, one file per family. A payload says what happened; its envelope
(`core.envelope.Event`) says who, where and when. Names in the log never change.

To add a family, add a file with its structs and their union, an import here and a term in
`KnownPayload`. Optional fields that the Managed Agents API does not have are ours.
"""

from typing import TypeAlias

from mainspring.core.events.agent import *
from mainspring.core.events.approval import *
from mainspring.core.events.client import *
from mainspring.core.events.dreams import *
from mainspring.core.events.evals import *
from mainspring.core.events.evolution import *
from mainspring.core.events.feedback import *
from mainspring.core.events.harness import *
from mainspring.core.events.memory import *
from mainspring.core.events.payload import *
from mainspring.core.events.session import *
from mainspring.core.events.span import *
from mainspring.core.events.utility import *
from mainspring.core.events.workflow import *
from mainspring.core.events.workspace import *

KnownPayload: TypeAlias = (
    ClientPayload
    | AgentPayload
    | ApprovalPayload
    | SessionPayload
    | SpanPayload
    | WorkflowPayload
    | HarnessPayload
    | WorkspacePayload
    | MemoryPayload
    | EvalPayload
    | UtilityPayload
    | DreamPayload
    | EvolutionPayload
)
"""Every event that this release can read and write."""
