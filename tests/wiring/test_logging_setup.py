import json
import logging
from io import StringIO

import pytest

from mainspring import InvalidInput
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.service.telemetry.logging_setup import log_context, log_to_stream

LOG = logging.getLogger("mainspring.test")
SCRUB = Scrubber({"API_KEY": "hunter2hunter2"})


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_json_with_its_context():
    stream = StringIO()
    with log_to_stream(stream, scrub=SCRUB), log_context(session_id="sesn_1", tenant="acme"):
        with log_context(request_id="req_1"):
            LOG.info("a %s", "message")
        LOG.warning("another", extra={"subject": {"status": 404}})
    first, second = lines(stream)
    assert str(first.pop("time")).endswith("Z")
    assert first == {
        "level": "info",
        "logger": "mainspring.test",
        "message": "a message",
        "session_id": "sesn_1",
        "tenant": "acme",
        "request_id": "req_1",
    }
    assert (second["status"], second["level"], "request_id" in second) == (404, "warning", False)


def test_at_a_terminal_a_log_line_is_readable_text():
    stream = Terminal()
    with log_to_stream(stream, scrub=SCRUB), log_context(session_id="sesn_1"):
        LOG.info("one\nline\x1b[2J")
    [line] = stream.getvalue().splitlines()
    assert line.endswith("info    mainspring.test: one\\nline\\x1b[2J session_id=sesn_1")


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_scrubbed_from_log_lines(form: str):
    stream = StringIO()
    with log_to_stream(stream, scrub=SCRUB, form=form):
        LOG.info("the key is hunter2hunter2", extra={"subject": {"key": "hunter2hunter2"}})
    assert "hunter2" not in stream.getvalue()
    assert "[API_KEY]" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_messages_of_foreign_errors_are_logged_only_at_debug_level(form: str):
    words = " ".join(("what the user", "wrote"))  # in no line of the source

    def fail() -> None:
        try:
            raise ValueError(words)
        except ValueError as error:
            try:
                raise InvalidInput("what we say") from error
            except InvalidInput:
                LOG.exception("it failed")

    told = StringIO()
    with log_to_stream(told, scrub=SCRUB, form=form):
        fail()
    assert words not in told.getvalue()
    assert "ValueError" in told.getvalue()
    assert "InvalidInput: what we say" in told.getvalue()
    assert "in fail" in told.getvalue()
    debug = StringIO()
    with log_to_stream(debug, scrub=SCRUB, form=form, level="debug"):
        fail()
    assert f"ValueError: {words}" in debug.getvalue()


def test_the_level_applies_to_our_loggers_and_libraries_only_warn():
    stream = StringIO()
    with log_to_stream(stream, scrub=SCRUB, level="debug"):
        LOG.debug("ours")
        logging.getLogger("aiohttp.server").info("theirs")
        logging.getLogger("aiohttp.server").warning("their trouble")
    assert [line["message"] for line in lines(stream)] == ["ours", "their trouble"]
    quiet = StringIO()
    with log_to_stream(quiet, scrub=SCRUB, level="ERROR"):
        LOG.warning("ours")
        logging.getLogger("aiohttp.server").warning("their trouble")
    assert quiet.getvalue() == ""


def test_the_previous_logging_setup_is_restored():
    before = (logging.getLogger().handlers[:], logging.getLogger("mainspring").level)
    with log_to_stream(StringIO(), scrub=SCRUB):
        assert len(logging.getLogger().handlers) == 1
    assert (logging.getLogger().handlers, logging.getLogger("mainspring").level) == before


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_is_refused(level: str, form: str):
    with (
        pytest.raises(InvalidInput, match="use one of"),
        log_to_stream(StringIO(), scrub=SCRUB, level=level, form=form),
    ):
        pass
