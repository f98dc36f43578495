from typing import Any

import msgspec
import pytest
from tests.hooks.hook_project import command, configured
from tests.row_checks import for_each

from mainspring.capabilities.hooks import HookConfig, parse_hooks
from mainspring.capabilities.hooks.config import CommandHook, HttpHook, sort_by_scope
from mainspring.core.errors import InvalidInput


def error_for(raw: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_hooks(raw, scope="user", source="settings.json")
    return str(caught.value)


def settings_with(handler: object, event: str = "PreToolUse") -> dict[str, Any]:
    return {
        "hooks": {
            event: [{"matcher": "Bash", "hooks": [{"type": "prompt", "prompt": "?"}, handler]}]
        }
    }


def test_every_field_of_every_handler_type_is_read():
    shared = {"if": "Bash(git *)", "timeout": 5, "statusMessage": "…", "once": True}
    handlers: list[dict[str, object]] = [
        {"type": "command", "command": "x", "args": ["a"], "async": True, "asyncRewake": True},
        {"type": "command", "command": "x", "shell": "powershell"},
        {"type": "http", "url": "http://h/", "headers": {"A": "$B"}, "allowedEnvVars": ["B"]},
        {"type": "mcp_tool", "server": "s", "tool": "t", "input": {"a": 1}},
        {"type": "prompt", "prompt": "$ARGUMENTS", "model": "m"},
        {"type": "agent", "prompt": "$ARGUMENTS", "model": "m"},
    ]
    config = configured("PreToolUse", *({**handler, **shared} for handler in handlers))
    written = msgspec.json.decode(msgspec.json.encode([hook.handler for hook in config.hooks]))
    assert written == [{**handler, **shared} for handler in handlers]


def test_a_config_is_unchanged_after_encoding_and_decoding():
    config = configured("PreToolUse", command("x", timeout=3), {"type": "nope"}, matcher="^B")
    assert msgspec.json.decode(msgspec.json.encode(config), type=HookConfig) == config


def test_settings_without_hooks_have_none():
    config = parse_hooks({"model": "opus"}, scope="user", source="s")
    assert (config.hooks, config.warnings) == ((), ())


@for_each(
    ("handler", "said"),
    [
        ({"type": "command"}, "missing required field `command`"),
        ({"type": "command", "command": ""}, "length >= 1"),
        ({"type": "command", "command": ["a"]}, "Expected `str`, got `array`"),
        ({"type": "command", "command": "x", "timeout": 0}, "> 0"),
        ({"type": "command", "command": "x", "timeout": "5"}, "Expected `float | null`, got `str`"),
        ({"type": "http", "url": "file:///etc/passwd"}, "regex"),
        ({"type": "http", "url": "http://[::1/"}, "`url` is not a URL"),
        ({"command": "x"}, "`type` must say what it is"),
        ("x", "Expected `object`, got `str`"),
    ],
)
def test_an_invalid_handler_is_refused_with_file_event_and_position(handler: object, said: str):
    message = error_for(settings_with(handler))
    assert message.startswith("settings.json: hooks.PreToolUse[0]")
    assert said in message


@pytest.mark.parametrize("raw", [{"hooks": []}, {"hooks": {"Stop": {}}}, {"hooks": {"Stop": [1]}}])
def test_an_invalid_structure_is_refused(raw: dict[str, Any]):
    assert error_for(raw).startswith("settings.json: hooks")


def test_an_unsupported_regular_expression_is_refused():
    raw = {"hooks": {"PreToolUse": [{"matcher": "^(?!Read)", "hooks": [command("x")]}]}}
    assert "settings.json: hooks.PreToolUse[0].hooks[0]: matcher '^(?!Read)'" in error_for(raw)


def test_unknown_fields_are_warned_about_and_the_rest_is_read():
    raw = {
        "hooks": {
            "PreToolUs": [{"hooks": [command("x")]}],
            "TeammateIdle": [{"hooks": [command("x")]}],
            "Stop": [{"hooks": [{"type": "wasm"}, command("y", timout=3)]}],
        }
    }
    config = parse_hooks(raw, scope="user", source="s")
    assert [hook.handler for hook in config.hooks] == [CommandHook(command="y")]
    assert [warning.split(":", 1)[1] for warning in config.warnings] == [
        " hooks.PreToolUs: PreToolUs is not a known event, so its hooks do not run; "
        "did you mean PreToolUse?",
        " hooks.TeammateIdle: TeammateIdle never happens here, so its hooks do not run",
        " hooks.Stop[0].hooks[0]: wasm is not a known type of hook, so it does not run",
        " hooks.Stop[0].hooks[1]: timout: not known, does nothing",
    ]


def test_a_blocking_hook_in_the_background_gets_a_warning():
    assert "cannot block" in configured("PreToolUse", command("x", **{"async": True})).warnings[0]


def test_configs_are_sorted_by_scope():
    configs = (
        configured("Stop", scope="local"),
        configured("Stop", scope="managed"),
        configured("Stop", scope="project"),
        configured("Stop", scope="user"),
    )
    assert [c.scope for c in sort_by_scope(configs)] == ["managed", "user", "project", "local"]


def test_a_label_hides_credentials_and_query_and_is_shortened():
    assert HttpHook(url="https://me:pw@host:8443/a?token=1").label == "https://host:8443/a"
    assert len(CommandHook(command="x" * 5000).label) == 100
