"""Tools that the official conformance suite calls."""

from collections.abc import Awaitable, Callable, Mapping

import anyio
import msgspec
from msgspec import Raw

from mainspring.capabilities.mcp.protocol.messages import (
    Audio,
    EmbeddedResource,
    Image,
    InputRequest,
    ResourceContent,
    Text,
)
from mainspring.capabilities.mcp.server import exchange as exchanges
from mainspring.capabilities.mcp.server import refusals
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import ToolReply

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5E"
    "rkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
Arguments = Mapping[str, object]
Handler = Callable[[Arguments, Exchange], Awaitable[ToolReply]]


def schema_of(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def text_field(description: str = "") -> dict[str, object]:
    return {"type": "string", **({"description": description} if description else {})}


def _sampling(text: str, max_tokens: int = 100) -> InputRequest:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    params = {"messages": [message], "maxTokens": max_tokens}
    return InputRequest(method="sampling/createMessage", params=Raw(msgspec.json.encode(params)))


ROOTS = InputRequest(method="roots/list", params=Raw(b"{}"))
NAME = exchanges.elicitation("What is your name?", schema_of(name=text_field()))
CONFIRM = exchanges.elicitation("Please confirm", schema_of(ok={"type": "boolean"}))


async def simple_text(_: Arguments, _exchange: Exchange) -> ToolReply:
    return ToolReply.text("This is a simple text response for testing.")


async def image_content(_: Arguments, _exchange: Exchange) -> ToolReply:
    return ToolReply(content=[Image(data=PNG, mime_type="image/png")])


async def audio_content(_: Arguments, _exchange: Exchange) -> ToolReply:
    return ToolReply(content=[Audio(data=WAV, mime_type="audio/wav")])


async def embedded_resource(_: Arguments, _exchange: Exchange) -> ToolReply:
    resource = ResourceContent(
        uri="test://embedded-resource",
        mime_type="text/plain",
        text="This is an embedded resource content.",
    )
    return ToolReply(content=[EmbeddedResource(resource=resource)])


async def multiple_content_types(_: Arguments, _exchange: Exchange) -> ToolReply:
    resource = ResourceContent(
        uri="test://mixed-content-resource",
        mime_type="application/json",
        text='{"test":"data","value":123}',
    )
    image = Image(data=PNG, mime_type="image/png")
    text = Text("Multiple content types test:")
    return ToolReply(content=[text, image, EmbeddedResource(resource=resource)])


async def tool_with_logging(_: Arguments, exchange: Exchange) -> ToolReply:
    for text in ("started", "processing data", "completed"):
        what = "processing data" if text == "processing data" else f"execution {text}"
        await exchange.log("info", f"Tool {what}")
        await anyio.sleep(0.05)
    return ToolReply.text("logged")


async def logging_tool(_: Arguments, exchange: Exchange) -> ToolReply:
    await exchange.log("info", "for who wants to read it")
    return ToolReply.text("logged")


async def tool_with_progress(_: Arguments, exchange: Exchange) -> ToolReply:
    for done in (0, 50, 100):
        await exchange.progress(done, total=100)
        await anyio.sleep(0.05)
    return ToolReply.text("done")


async def error_handling(_: Arguments, _exchange: Exchange) -> ToolReply:
    text = "This tool intentionally returns an error for testing"
    return ToolReply.text(text, is_error=True)


async def sampling(arguments: Arguments, exchange: Exchange) -> ToolReply:
    answers = await exchange.ask({"sampling": _sampling(str(arguments["prompt"]))})
    return ToolReply.text(f"LLM response: {_sampled(answers['sampling'])}")


async def elicitation(arguments: Arguments, exchange: Exchange) -> ToolReply:
    schema = schema_of(
        username=text_field("User's response"), email=text_field("User's email address")
    )
    answer = await exchange.elicit("user", str(arguments["message"]), schema)
    return ToolReply.text(f"User response: action={answer.action}, content={answer.content}")


async def elicitation_sep1034_defaults(_: Arguments, exchange: Exchange) -> ToolReply:
    schema = schema_of(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        verified={"type": "boolean", "default": True},
    )
    answer = await exchange.elicit("defaults", "Please review", schema)
    return ToolReply.text(
        f"Elicitation completed: action={answer.action}, content={answer.content}"
    )


async def elicitation_sep1330_enums(_: Arguments, exchange: Exchange) -> ToolReply:
    options = ["option1", "option2", "option3"]
    names = ("First", "Second", "Third")

    def titled(what: str) -> list[dict[str, str]]:
        return [
            {"const": f"value{at}", "title": f"{name} {what}"} for at, name in enumerate(names, 1)
        ]

    schema = schema_of(
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled("Option")},
        legacyEnum={
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled("Choice")}},
    )
    answer = await exchange.elicit("enums", "Please choose", schema)
    return ToolReply.text(
        f"Elicitation completed: action={answer.action}, content={answer.content}"
    )


async def missing_capability(_: Arguments, exchange: Exchange) -> ToolReply:
    if not exchange.can_ask("sampling/createMessage"):
        raise refusals.missing_capability("sampling")
    return ToolReply.text("it has the capability")


async def streaming_elicitation(_: Arguments, exchange: Exchange) -> ToolReply:
    await exchange.elicit("stream", "Please confirm", schema_of(ok={"type": "boolean"}))
    return ToolReply.text("confirmed")


async def input_required_result_elicitation(_: Arguments, exchange: Exchange) -> ToolReply:
    answers = await exchange.ask({"user_name": NAME})
    return ToolReply.text(f"Hello, {_content(answers['user_name'])['name']}!")


async def input_required_result_sampling(_: Arguments, exchange: Exchange) -> ToolReply:
    question = _sampling("What is the capital of France?")
    answers = await exchange.ask({"capital_question": question})
    return ToolReply.text(_sampled(answers["capital_question"]))


async def input_required_result_list_roots(_: Arguments, exchange: Exchange) -> ToolReply:
    answers = await exchange.ask({"client_roots": ROOTS})
    return ToolReply.text(bytes(answers["client_roots"]).decode())


async def input_required_result_request_state(_: Arguments, exchange: Exchange) -> ToolReply:
    await exchange.ask({"confirm": CONFIRM}, note=b"state")
    return ToolReply.text("state-ok" if exchange.note == b"state" else "state lost")


async def input_required_result_multiple_inputs(_: Arguments, exchange: Exchange) -> ToolReply:
    greeting = _sampling("Generate a greeting", 50)
    questions = {"user_name": NAME, "greeting": greeting, "client_roots": ROOTS}
    answers = await exchange.ask(questions, note=b"all")
    return ToolReply.text(", ".join(answers))


async def input_required_result_multi_round(_: Arguments, exchange: Exchange) -> ToolReply:
    first = exchanges.elicitation("Step 1: What is your name?", schema_of(name=text_field()))
    second = exchanges.elicitation(
        "Step 2: What is your favorite color?", schema_of(color=text_field())
    )
    name = _content((await exchange.ask({"step1": first}, note=b"1"))["step1"])["name"]
    color = _content((await exchange.ask({"step2": second}, note=b"2"))["step2"])["color"]
    return ToolReply.text(f"{name} likes {color}")


async def input_required_result_tampered_state(_: Arguments, exchange: Exchange) -> ToolReply:
    await exchange.ask({"confirm": CONFIRM}, note=b"signed")
    return ToolReply.text("confirmed")


async def input_required_result_capabilities(_: Arguments, exchange: Exchange) -> ToolReply:
    questions = {"name": NAME, "question": _sampling("What is the capital of France?")}
    possible = {key: it for key, it in questions.items() if exchange.can_ask(it.method)}
    answers = await exchange.ask(possible)
    return ToolReply.text(", ".join(answers))


async def custom_headers(arguments: Arguments, _exchange: Exchange) -> ToolReply:
    return ToolReply.text(msgspec.json.encode(arguments).decode())


async def json_schema_2020_12_tool(_: Arguments, _exchange: Exchange) -> ToolReply:
    return ToolReply.text("valid")


CUSTOM_HEADERS: dict[str, object] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "query": {"type": "string"},
    },
}
JSON_SCHEMA_2020_12: dict[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
    "if": {"properties": {"name": {"const": "x"}}},
    "then": {"required": ["address"]},
    "else": {},
    "additionalProperties": False,
}


def _content(answer: Raw) -> dict[str, object]:
    return msgspec.json.decode(answer)["content"]


def _sampled(answer: Raw) -> str:
    return msgspec.json.decode(answer)["content"]["text"]


TOOLS: tuple[tuple[Handler, dict[str, object]], ...] = (
    (simple_text, schema_of()),
    (image_content, schema_of()),
    (audio_content, schema_of()),
    (embedded_resource, schema_of()),
    (multiple_content_types, schema_of()),
    (tool_with_logging, schema_of()),
    (logging_tool, schema_of()),
    (tool_with_progress, schema_of()),
    (error_handling, schema_of()),
    (sampling, schema_of(prompt=text_field())),
    (elicitation, schema_of(message=text_field())),
    (elicitation_sep1034_defaults, schema_of()),
    (elicitation_sep1330_enums, schema_of()),
    (missing_capability, schema_of()),
    (streaming_elicitation, schema_of()),
    (input_required_result_elicitation, schema_of()),
    (input_required_result_sampling, schema_of()),
    (input_required_result_list_roots, schema_of()),
    (input_required_result_request_state, schema_of()),
    (input_required_result_multiple_inputs, schema_of()),
    (input_required_result_multi_round, schema_of()),
    (input_required_result_tampered_state, schema_of()),
    (input_required_result_capabilities, schema_of()),
    (custom_headers, CUSTOM_HEADERS),
    (json_schema_2020_12_tool, JSON_SCHEMA_2020_12),
)
