"""A model that plays a script out of a file: which step answers which request."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests import fork_server
from tests.cli.conftest import environ
from tests.providers.wire import asks, collect

from mainspring.capabilities.providers.script_file import (
    offline_model,
    read_script,
    scripted_models,
)
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.model import Assistant, Message, Reply, ToolResultBlock, ToolUse, User

__all__ = ["environ"]

SCRIPT = """
- when: read the log
  steps:
    - calls:
        - {tool: read, input: {file_path: log.txt}}
        - {tool: read, input: {file_path: old.txt, since: 2031-06-09}}
    - expects: 2 errors
      says: There are two.
- steps:
    - says: I look.
      calls: [{tool: bash, input: {command: ls}}]
    - says: That is all.
"""


def user_message(text: str) -> User:
    return User((TextBlock(text),))


def tool_results(text: str, *, note: str = "") -> User:
    notes = (TextBlock(f"<system-note>\n{note}\n</system-note>"),) if note else ()
    return User((ToolResultBlock(tool_use_id="t1", content=(TextBlock(text),)), *notes))


def tool_use_message() -> Assistant:
    return Assistant((ToolUse(id="t1", name="bash", input={}),))


async def reply_to(messages: Sequence[Message]) -> Reply:
    return (await collect(offline_model(SCRIPT, name="offline.yaml"), asks(*messages)))[1]


def reply_text(reply: Reply) -> str:
    return "".join(block.text for block in reply.content if isinstance(block, TextBlock))


def reply_calls(reply: Reply) -> list[tuple[str, object]]:
    return [(item.name, item.input) for item in reply.content if isinstance(item, ToolUse)]


async def test_a_part_is_chosen_by_the_words_of_the_message():
    reply = await reply_to([user_message("Please read the log.")])
    assert reply_calls(reply) == [
        ("read", {"file_path": "log.txt"}),
        ("read", {"file_path": "old.txt", "since": "2031-06-09"}),
    ]
    assert reply_text(reply) == ""
    assert reply_text(await reply_to([user_message("Anything.")])) == "I look."


async def test_the_next_step_depends_only_on_the_request():
    talk: list[Message] = [
        user_message("Go."),
        tool_use_message(),
        tool_results("a.txt", note="3 turns are left"),
    ]
    assert reply_text(await reply_to(talk)) == "That is all."
    assert reply_text(await reply_to(talk)) == "That is all."


async def test_a_new_message_starts_its_part_again():
    talk: list[Message] = [
        user_message("Go."),
        tool_use_message(),
        tool_results("a.txt"),
        Assistant((TextBlock("Done."),)),
    ]
    assert reply_text(await reply_to([*talk, user_message("Go on.")])) == "I look."


async def test_a_step_whose_expectation_is_not_met_fails():
    good = [user_message("read the log"), tool_use_message(), tool_results("log.txt has 2 errors")]
    assert reply_text(await reply_to(good)) == "There are two."
    with pytest.raises(ProviderFailed, match="'2 errors'; they are 'no such file'") as failed:
        await reply_to([*good[:2], tool_results("no such file")])
    assert (failed.value.kind, failed.value.retryable) == ("exhausted", False)


async def test_an_exhausted_or_missing_part_is_reported():
    with pytest.raises(ProviderFailed, match=r"offline.yaml ends after 2 steps for 'Go.'"):
        await reply_to(
            [
                user_message("Go."),
                tool_use_message(),
                tool_results("a"),
                tool_use_message(),
                tool_results("b"),
            ]
        )
    model = offline_model("[{when: left, steps: [{says: x}]}]", name="s")
    with pytest.raises(ProviderFailed, match="s has no part for 'hello'"):
        await collect(model)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- steps: [", "s.yaml: "),
        ("when: x", "s.yaml: Expected `array`"),
        ("[{when: x}]", r"s.yaml: .*`steps`"),
        ("[{steps: [{sayz: x}]}]", r"s.yaml: .*`sayz`.*\[0\].steps\[0\]"),
        ("[{steps: [{calls: [bash]}]}]", r"s.yaml: Expected `object`"),
        ("- &a {steps: []}\n- *a\n", "s.yaml: line 2: it has aliases"),
        ("[" * 5000, "s.yaml: line 1: it is too deep"),
    ],
)
def test_an_invalid_script_is_explained(text: str, why: str):
    with pytest.raises(InvalidInput, match=why):
        read_script(text, name="s.yaml")


def test_a_script_must_be_inside_the_agents_folder(tmp_path: Path):
    folder = tmp_path / "agent"
    folder.mkdir()
    (tmp_path / "outside.yaml").write_text(SCRIPT)
    (folder / "inside.yaml").write_text(SCRIPT)
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    assert list(scripted_models("scripted:inside.yaml, sonnet", folder)) == ["scripted:inside.yaml"]
    assert scripted_models("scripted:demo,ollama:x", folder) == {}
    for name in ("../outside.yaml", str(tmp_path / "outside.yaml"), "link.yaml"):
        with pytest.raises(InvalidInput, match="inside the agent's folder"):
            scripted_models(f"scripted:{name}", folder)
    with pytest.raises(InvalidInput, match=r"missing.yaml: there is no such script"):
        scripted_models("scripted:missing.yaml", folder)


def test_a_script_of_the_agent_folder_answers_and_resumes(tmp_path: Path, environ: dict[str, str]):
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "agent.yaml").write_text("model: scripted:play.yaml\n")
    (agent / "play.yaml").write_text("[{when: two, steps: [{says: Two}]}, {steps: [{says: One}]}]")
    first = fork_server.run("run", "one", "--agent", "agent", cwd=tmp_path, env=environ)
    assert (first.stdout, first.returncode) == ("One\n", 0)
    assert "scripted:play.yaml answers: a script" in first.stderr
    session = first.stderr.split()[-1]
    second = fork_server.run("run", "two", "--resume", session, cwd=tmp_path, env=environ)
    assert (second.stdout, second.returncode) == ("Two\n", 0)
