"""What a message to a session costs."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mainspring.config import read_settings
from mainspring.core.content import TextBlock
from mainspring.core.sender import Origin
from mainspring.log.records import SESSION_KIND
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agents import CreateAgent
from mainspring.service.resources.environments import CreateEnvironment, SelfHostedConfig
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.sessions.session_params import CreateSession
from mainspring.wiring.service_assembly import open_service

OLGA = Principal(tenant="acme", key_id="key_1", role="admin", name="olga")


@contextmanager
def decoded_kinds() -> Generator[list[str]]:
    """The kinds of the records that are decoded in the block."""
    kinds: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "Repository.read":
            kinds.append(frame.f_locals["self"].kind)

    sys.setprofile(note)
    try:
        yield kinds
    finally:
        sys.setprofile(None)


async def test_a_message_decodes_the_session_record_once(tmp_path: Path):
    settings = read_settings(
        store=str(tmp_path / "log.db"), environ={"MAINSPRING_VAULT": str(tmp_path / "vault")}
    )
    async with open_service(settings) as service:
        resources, sessions = service.resources, service.sessions
        agent = await resources.agents.create(
            "acme", CreateAgent(name="helper", model="claude-opus-5-5")
        )
        environment = await resources.environments.create(
            "acme", CreateEnvironment(name="lab", config=SelfHostedConfig())
        )
        request = CreateSession(agent=agent.id, environment_id=environment.id)
        origin = Origin(type="api", id=OLGA.key_id)
        session = await sessions.sessions.create(OLGA, request, origin=origin)
        with decoded_kinds() as kinds:
            sent = await sessions.event_sender.send(
                OLGA, session.id, [SendMessage(content=(TextBlock("hi"),))]
            )
        assert [event["type"] for event in sent] == ["user.message"]
        assert kinds.count(SESSION_KIND) == 1
        stats = await sessions.work.stats("acme", environment.id)
        assert stats.depth == 1  # and the worker of its environment is told
