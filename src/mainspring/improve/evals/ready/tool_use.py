"""Tool use: call the right tool with the right input, ask for missing input, and call no tool if
none fits."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.improve.evals.graders import CallPattern, Contains, Trajectory
from mainspring.improve.evals.ready.scripts import calls, script
from mainspring.improve.evals.suite import Case, FakeService, Suite


def _schema(*names: str) -> dict[str, object]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


_SERVICES = (
    FakeService(
        tool="weather",
        description="The weather of a city on a day.",
        answers={"*": "sunny, 21 degrees"},
        input_schema=_schema("city", "day"),
        is_read_only=True,
    ),
    FakeService(
        tool="send_email",
        description="Sends an email at once; it cannot be taken back.",
        answers={"*": "sent"},
        input_schema=_schema("to", "subject", "body"),
        is_read_only=True,
    ),
    FakeService(
        tool="book_room",
        description="Books a meeting room.",
        answers={"*": "booked: room 4"},
        input_schema=_schema("day", "time", "people"),
        is_read_only=True,
    ),
)
"""Their calls need no approval: only the model decides whether to call them."""


def tool_use_suite() -> Suite:
    return Suite(
        name="tool-use",
        description="The right tool with the right input; ask, or call nothing, where none fits.",
        cases=(*_must_call(), *_must_ask(), *_must_not_call()),
        timeout_seconds=120,
    )


def _must_call() -> Iterator[Case]:
    email: dict[str, object] = {"to": "ann@example.com", "subject": "Lunch", "body": "At noon?"}
    room: dict[str, object] = {"day": "Friday", "time": "10:00", "people": "6"}
    for name, request, tool, arguments, answer in (
        (
            "weather",
            "What is the weather in Rome on Monday?",
            "weather",
            {"city": "Rome", "day": "Monday"},
            "sunny",
        ),
        (
            "email",
            "Email ann@example.com, subject Lunch, text: At noon?",
            "send_email",
            email,
            "sent",
        ),
        ("room", "Book a room for 6 people on Friday at 10:00.", "book_room", room, "room 4"),
    ):
        fields: dict[str, object] = {key: f"/(?i){value}/" for key, value in arguments.items()}
        yield Case(
            id=f"calls-{name}",
            input=request,
            services=_SERVICES,
            tags=("must call",),
            graders=(
                Trajectory(used=(CallPattern(tool=tool, input=_escape(fields)),)),
                Contains(text=answer, ignore_case=True),
            ),
            solution=script(calls(tool, **arguments), f"It says: {answer}."),
            failure=script(f"It says: {answer}."),
        )


def _escape(fields: dict[str, object]) -> dict[str, object]:
    return {
        key: str(value).replace("?/", "\\?/").replace(".", "\\.") for key, value in fields.items()
    }


def _must_ask() -> Iterator[Case]:
    """A required input is missing; the agent must ask for it instead of guessing."""
    for name, request, tool, guess in (
        ("no-city", "How is the weather going to be?", "weather", {"city": "Rome", "day": "today"}),
        (
            "no-recipient",
            "Send an email that I am ill today.",
            "send_email",
            {"to": "boss@example.com", "subject": "ill", "body": "I am ill."},
        ),
        (
            "no-time",
            "Book a room on Friday.",
            "book_room",
            {"day": "Friday", "time": "9", "people": "2"},
        ),
        (
            "no-day",
            "I need a room for 4 at 15:00.",
            "book_room",
            {"day": "Monday", "time": "15:00", "people": "4"},
        ),
    ):
        yield Case(
            id=f"asks-{name}",
            input=request,
            services=_SERVICES,
            tags=("must ask",),
            expect="ask",
            graders=(Trajectory(not_tried=(tool,)),),
            solution=script("That I do not know yet: which one?"),
            failure=script(calls(tool, **guess), "Done. Anything else?"),
        )


def _must_not_call() -> Iterator[Case]:
    """No tool fits, or none is needed."""
    tools = tuple(service.tool for service in _SERVICES)
    for name, request, answer, tool, arguments in (
        ("arithmetic", "What is 6 x 7?", "42", "weather", {"city": "42", "day": "6"}),
        (
            "drafts-only",
            "Draft an email to ann@example.com about lunch. Do not send it.",
            "lunch",
            "send_email",
            {"to": "ann@example.com", "subject": "lunch", "body": "lunch?"},
        ),
        (
            "no-such-tool",
            "Book a flight to Rome on Friday.",
            "flight",
            "book_room",
            {"day": "Friday", "time": "9", "people": "1"},
        ),
        (
            "knows-already",
            "It is sunny in Rome today. Do I need an umbrella there?",
            "no",
            "weather",
            {"city": "Rome", "day": "today"},
        ),
    ):
        yield Case(
            id=f"does-not-call-{name}",
            input=request,
            services=_SERVICES,
            tags=("must not call",),
            graders=(Trajectory(not_tried=tools), Contains(text=answer, ignore_case=True)),
            solution=script(f"Without any tool: no, {answer}."),
            failure=script(calls(tool, **arguments), f"Without any tool: no, {answer}."),
        )
