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


def test_a_line_is_json_and_says_what_the_work_is_about():
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


def test_at_a_terminal_a_line_is_for_people():
    stream = Terminal()
    with log_to_stream(stream, scrub=SCRUB), log_context(session_id="sesn_1"):
        LOG.info("one\nline\x1b[2J")
    [line] = stream.getvalue().splitlines()
    assert line.endswith("info    mainspring.test: one\\nline\\x1b[2J session_id=sesn_1")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_secret_does_not_get_into_it(form: str):
    stream = StringIO()
    with log_to_stream(stream, scrub=SCRUB, form=form):
        LOG.info("the key is hunter2hunter2", extra={"subject": {"key": "hunter2hunter2"}})
    assert "hunter2" not in stream.getvalue()
    assert "[API_KEY]" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_foreign_error_says_is_told_at_level_debug_only(form: str):
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


def test_the_level_is_ours_and_libraries_only_warn():
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


def test_what_was_before_is_there_again():
    before = (logging.getLogger().handlers[:], logging.getLogger("mainspring").level)
    with log_to_stream(StringIO(), scrub=SCRUB):
        assert len(logging.getLogger().handlers) == 1
    assert (logging.getLogger().handlers, logging.getLogger("mainspring").level) == before


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "xml")])
def test_what_there_is_not_is_refused(level: str, form: str):
    with (
        pytest.raises(InvalidInput, match="use one of"),
        log_to_stream(StringIO(), scrub=SCRUB, level=level, form=form),
    ):
        pass
