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


def said(text: str) -> User:
    return User((TextBlock(text),))


def results(text: str, *, note: str = "") -> User:
    notes = (TextBlock(f"<system-note>\n{note}\n</system-note>"),) if note else ()
    return User((ToolResultBlock(tool_use_id="t1", content=(TextBlock(text),)), *notes))


def used() -> Assistant:
    return Assistant((ToolUse(id="t1", name="bash", input={}),))


async def reply_to(messages: Sequence[Message]) -> Reply:
    return (await collect(offline_model(SCRIPT, name="offline.yaml"), asks(*messages)))[1]


def words(reply: Reply) -> str:
    return "".join(block.text for block in reply.content if isinstance(block, TextBlock))


def uses(reply: Reply) -> list[tuple[str, object]]:
    return [(item.name, item.input) for item in reply.content if isinstance(item, ToolUse)]


async def test_a_part_is_for_whoever_is_asked_something_with_its_words():
    reply = await reply_to([said("Please read the log.")])
    assert uses(reply) == [
        ("read", {"file_path": "log.txt"}),
        ("read", {"file_path": "old.txt", "since": "2031-06-09"}),
    ]
    assert words(reply) == ""
    assert words(await reply_to([said("Anything.")])) == "I look."


async def test_the_next_step_follows_from_the_request_alone():
    talk: list[Message] = [said("Go."), used(), results("a.txt", note="3 turns are left")]
    assert words(await reply_to(talk)) == "That is all."
    assert words(await reply_to(talk)) == "That is all."


async def test_what_is_asked_next_begins_its_part_anew():
    talk: list[Message] = [said("Go."), used(), results("a.txt"), Assistant((TextBlock("Done."),))]
    assert words(await reply_to([*talk, said("Go on.")])) == "I look."


async def test_a_step_that_expects_something_does_not_claim_what_did_not_happen():
    good = [said("read the log"), used(), results("log.txt has 2 errors")]
    assert words(await reply_to(good)) == "There are two."
    with pytest.raises(ProviderFailed, match="'2 errors'; they are 'no such file'") as failed:
        await reply_to([*good[:2], results("no such file")])
    assert (failed.value.kind, failed.value.retryable) == ("exhausted", False)


async def test_a_script_that_is_used_up_or_has_no_part_says_so():
    with pytest.raises(ProviderFailed, match=r"offline.yaml ends after 2 steps for 'Go.'"):
        await reply_to([said("Go."), used(), results("a"), used(), results("b")])
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
def test_what_is_no_script_is_named(text: str, why: str):
    with pytest.raises(InvalidInput, match=why):
        read_script(text, name="s.yaml")


def test_a_script_lies_in_the_agent_s_folder_and_nowhere_else(tmp_path: Path):
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


def test_a_folders_own_script_answers_and_resumes(tmp_path: Path, environ: dict[str, str]):
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
