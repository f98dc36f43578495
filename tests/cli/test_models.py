"""`mainspring models`, `cost` and `context`."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

PRICED = """
[models."ollama:dear"]
window = 100_000
max_output = 4_000
price = { input = "10", output = "100", cache_read = "1", cache_write = "10" }
price_date = "2026-11-01"
"""


def lines(result: CompletedProcess[str]) -> list[dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def priced_model(environ: dict[str, str]) -> str:
    write_file(Path(environ["HOME"]) / ".mainspring/models.toml", PRICED)
    return "ollama:dear"


def test_ls_shows_windows_prices_and_whether_a_key_is_set(mainspring: Run, priced_model: str):
    views = {view["id"]: view for view in lines(mainspring("models", "ls", "--json"))}
    assert views[priced_model]["price_date"] == "2026-11-01"
    assert (views[priced_model]["window"], views[priced_model]["key_is_set"]) == (100_000, True)
    assert views["scripted:demo"]["key"] is None
    [sonnet] = [view for view in views.values() if "sonnet" in view["aliases"]]
    assert (sonnet["key"], sonnet["key_is_set"]) == ("ANTHROPIC_API_KEY", False)
    shown = mainspring("models", "ls", ANTHROPIC_API_KEY="sk-test").stdout
    [row] = [row for row in shown.splitlines() if row.startswith(sonnet["id"])]
    assert row.split()[1] == "set"
    assert "sk-test" not in shown


def test_an_expired_price_is_reported_once(
    mainspring: Run, upstream: Upstream, environ: dict[str, str]
):
    price = '{ input = "1", output = "2", cache_read = "1", cache_write = "1", valid_until = %s }'
    rows = "".join(
        f'[models."ollama:{name}"]\nwindow = 9_000\nmax_output = 900\nprice = {price % day}\n'
        for name, day in (("old", "2020-01-31"), ("new", '"2999-12-31"'))
    )
    write_file(Path(environ["HOME"]) / ".mainspring/models.toml", rows)
    views = {view["id"]: view for view in lines(mainspring("models", "ls", "--json"))}
    assert views["ollama:old"]["price_expired"] == "2020-01-31"
    assert views["ollama:new"]["price_expired"] is None
    listed = mainspring("models", "ls")
    assert "until 2020-01-31" in listed.stdout
    assert ".mainspring/models.toml" in listed.stderr
    told = [
        mainspring("run", "hi", **{**upstream.variables, "MAINSPRING_MODEL": name}).stderr
        for name in ("ollama:old", "ollama:old", "ollama:new")
    ]
    warning = "warning: ollama:old: the catalogue price expired on 2020-01-31"
    assert [warning in item for item in told] == [True, False, False]
    assert "set the current price in .mainspring/models.toml" in told[0]


def test_models_test_makes_one_call_and_measures_it(
    mainspring: Run, upstream: Upstream, priced_model: str
):
    upstream.says("ready")
    address = {"OLLAMA_BASE_URL": upstream.url}
    [view] = lines(mainspring("models", "test", priced_model, "--json", **address))
    assert (view["model"], view["text"]) == (priced_model, "ready")
    assert 0 < view["first_seconds"] <= view["seconds"]
    assert view["cost_usd"] == "0.0039"
    upstream.says(401)
    failed = mainspring("models", "test", priced_model, **address)
    assert failed.returncode == 1
    assert "as the test says" in failed.stderr
    assert "did you mean" in mainspring("models", "test", "sonet").stderr


def test_drill_makes_the_second_model_do_the_work(mainspring: Run, upstream: Upstream):
    upstream.says("ready")
    upstream.says(call("look_up", key="alpha"))
    upstream.says("It is indigo-47.")
    address = {"OLLAMA_BASE_URL": upstream.url}
    result = mainspring("models", "drill", "ollama:first,ollama:second", **address)
    assert result.returncode == 0
    assert result.stdout.count("✓") == 3
    assert {request["model"] for request in upstream.requests} == {"second"}
    unfit = mainspring("models", "drill", "ollama:first,ollama:second", "--json", **address)
    assert unfit.returncode == 1
    checks = [json.loads(line) for line in unfit.stdout.splitlines()]
    assert [check["ok"] for check in checks] == [True, False, False]
    alone = mainspring("models", "drill", "ollama:first", **address)
    assert "there is nothing to fail over to" in alone.stderr


def test_cost_is_summed_by_the_requested_grouping(
    mainspring: Run, upstream: Upstream, priced_model: str
):
    address = {"OLLAMA_BASE_URL": upstream.url}
    upstream.says(call("history_search", query="x"))
    mainspring("run", "one", "--model", priced_model, **address)
    mainspring("run", "two", "--model", "ollama:free", **address)
    first, second = lines(mainspring("cost", "--json"))
    assert (first["cost_usd"], first["calls"], second["cost_usd"]) == ("0.0078", 2, "0")
    models = lines(mainspring("cost", "--by", "model", "--json"))
    assert {bill["key"]: bill["calls"] for bill in models} == {priced_model: 2, "ollama:free": 1}
    [agent] = lines(mainspring("cost", "--by", "agent", "--json"))
    assert (agent["key"], agent["usage"]["output_tokens"]) == ("project", 60)
    assert len(lines(mainspring("cost", "--by", "day", "--json"))) == 1
    assert mainspring("cost").stdout.splitlines()[-1].split()[:2] == ["total", "$0.0078"]
    [fork] = lines(mainspring("sessions", "fork", first["key"], "--json"))
    assert lines(mainspring("cost", fork["id"], "--json")) == []


@pytest.fixture
def session(mainspring: Run, upstream: Upstream) -> str:
    """One of three calls, the last with another model."""
    upstream.says("I look.", call("history_search", query="key"))
    mainspring("run", "find the key", **upstream.variables)
    [view] = lines(mainspring("sessions", "ls", "--json"))
    other = {**upstream.variables, "MAINSPRING_MODEL": "ollama:x"}
    mainspring("run", "and now?", "--resume", view["id"], "--model", "ollama:other", **other)
    return view["id"]


def test_context_shows_the_parts_of_every_model_call(mainspring: Run, session: str):
    calls = lines(mainspring("context", "show", session, "--json"))
    assert [entry["call"] for entry in calls] == [1, 2, 3]
    assert [entry["cache_break"] for entry in calls] == [None, None, "model changed"]
    for item in calls:
        assert sum(item["parts"][part] for part in PARTS) == 1000
        assert item["tokens_are_measured"] is True
    assert [item["kept_messages"] for item in calls] == [0, 1, 3]
    assert "model changed" in mainspring("context", "show", session).stdout
    detail = mainspring("context", "show", session, "--call", "3").stdout
    assert "compared with call 2: 3 messages unchanged" in detail
    assert "-model ollama:test" in detail
    assert "+model ollama:other" in detail
    assert "+ user       and now?" in detail
    assert "there is no call 4" in mainspring("context", "show", session, "--call", "4").stderr


def test_context_shows_the_source_of_each_part_and_tool_call_counts(mainspring: Run, session: str):
    [shot] = lines(mainspring("context", "show", session, "--call", "2", "--json"))
    sources = {(part["place"], part["source"], part["reason"]): part for part in shot["sources"]}
    assert sum(part["tokens"] for part in shot["sources"]) == 1000
    assert sources["messages", "tool history_search", "results"]["blocks"] == 1
    assert ("messages", "model", "tool calls") in sources
    assert ("messages", "Mainspring", "status blocks") in sources
    assert ("system", "Mainspring", "how to work with tools") in sources
    [user] = [part for part in shot["sources"] if part["source"].startswith("person ")]
    assert (user["reason"], user["blocks"]) == ("messages", 1)
    called = {tool["name"]: tool["calls"] for tool in shot["tools"]}
    assert {name: count for name, count in called.items() if count} == {"history_search": 1}
    text = mainspring("context", "show", session, "--call", "2").stdout
    assert "CALLS IN THE LAST 20 SESSIONS" in text


PARTS = ("tools", "system_static", "system_dynamic", "history", "newest")


def test_a_raw_request_matches_the_request_that_was_sent(
    mainspring: Run, upstream: Upstream, session: str
):
    requests = lines(mainspring("context", "show", session, "--raw"))
    assert len(requests) == len(upstream.requests) == 3
    for rebuilt, sent in zip(requests, upstream.requests, strict=True):
        texts = [
            part["text"]
            for message in rebuilt["messages"]
            if message["role"] == "user"
            for part in message["content"]
            if part["type"] == "text"
        ]
        assert texts == [item["content"] for item in sent["messages"] if item["role"] == "user"]
        assert [tool["name"] for tool in rebuilt["tools"]] == [
            tool["function"]["name"] for tool in sent["tools"]
        ]
        assert sent["messages"][0]["content"] == "\n\n".join(rebuilt["system"])


@pytest.mark.parametrize("server", ["OLLAMA", "LMSTUDIO"])
def test_without_a_key_a_local_model_is_used(mainspring: Run, upstream: Upstream, server: str):
    upstream.models = ["nomic-embed-text", "qwen3:8b", "gemma"]
    upstream.says("Hello from here.")
    done = mainspring("run", "hi", **{f"{server}_BASE_URL": upstream.url})
    assert done.stdout == "Hello from here.\n", done.stderr
    assert f"no model is set up; {server.lower()}:qwen3:8b runs on this machine" in done.stderr
    assert upstream.requests[-1]["model"] == "qwen3:8b"


def test_a_remote_server_or_one_without_models_is_not_used(mainspring: Run, upstream: Upstream):
    for address in (upstream.url, "http://models.example.com/v1"):
        done = mainspring("run", "hi", OLLAMA_BASE_URL=address)
        assert done.returncode == 0
        assert "no server on this machine (Ollama, LM Studio) has one" in done.stderr
    assert upstream.requests == []
