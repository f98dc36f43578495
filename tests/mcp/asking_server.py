"""A server whose tools ask and change, with a prompt and resources. Its argument is the era."""
# pyright: basic

import json
import os
import sys

IS_MODERN = sys.argv[1] == "modern"
FORM = {
    "message": "Which seat?",
    "requestedSchema": {
        "type": "object",
        "properties": {"seat": {"type": "string", "enum": ["aisle", "window"]}},
        "required": ["seat"],
    },
}
QUESTIONS = 3
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJ1c2VyIjoiYWRhIn0.dGhpcy1pcy1hLXNpZ25hdHVyZS1vZi0zMi1ieXRl"
"""What states look like: one that is redacted on the way is not taken back."""
tools = [{"name": "book"}, {"name": "grow"}, {"name": "tour"}]
if not IS_MODERN:
    tools.append({"name": "ask_model"})
waiting: list[object] = []
answers: dict[object, object] = {}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(text):
    with open("calls.txt", "a") as file:
        file.write(text + "\n")


def text(value):
    return {"content": [{"type": "text", "text": str(value)}], "resultType": "complete"}


def tour(params):
    """Asks the same thing several times; what was answered so far is in the state."""
    state = params.get("requestState", "")
    stops = state.removeprefix(JWT).split()
    if "inputResponses" in params:
        assert state.startswith(JWT)
        stops.append(params["inputResponses"]["q"]["content"]["seat"])
    if len(stops) == QUESTIONS:
        return text(f"toured {' '.join(stops)}")
    asked = {"q": {"method": "elicitation/create", "params": FORM}}
    state = f"{JWT} {' '.join(stops)}"
    return {"resultType": "input_required", "inputRequests": asked, "requestState": state}


def call(id_, params):
    name = params["name"]
    note(name)
    if name == "ask_model":
        waiting.append(id_)
        send(id="roots", method="roots/list")
        words = {"type": "text", "text": "Six times seven?"}
        asked = {"messages": [{"role": "user", "content": words}], "maxTokens": 50}
        send(id="model", method="sampling/createMessage", params=asked)
        return None
    if name == "tour":
        return tour(params)
    if name == "grow":
        tools[1] = {"name": "harvest", "description": "Harvest it."}
        send(method="notifications/tools/list_changed")
        return text("grown")
    if name == "harvest":
        return text("harvested")
    if not IS_MODERN:
        waiting.append(id_)
        send(id="ask", method="elicitation/create", params=FORM)
        return None
    if "inputResponses" not in params:
        asked = {"q": {"method": "elicitation/create", "params": FORM}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    return text(f"booked {params['inputResponses']['q']}")


CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
for line in sys.stdin:
    message = json.loads(line)
    method, id_, params = message.get("method"), message.get("id"), message.get("params", {})
    result: object = None
    if method is None and id_ in ("roots", "model"):
        answers[id_] = message.get("result", message.get("error"))
        if len(answers) == 2:
            send(id=waiting.pop(), result=text(json.dumps(answers)))
    elif method is None and id_ == "ask":
        send(id=waiting.pop(), result=text(f"booked {message['result']}"))
    elif id_ is None or (method == "subscriptions/listen"):
        continue
    elif method == "server/discover" and IS_MODERN:
        result = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
    elif method == "initialize" and not IS_MODERN:
        server = {"name": "asking", "version": "1"}
        result = {
            "protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server,
        }  # fmt: skip
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "tools/call":
        result = call(id_, params)
    elif method == "prompts/list":
        arguments = [{"name": "who", "required": True}, {"name": "how"}]
        result = {"prompts": [{"name": "say.hello", "arguments": arguments}]}
    elif method == "prompts/get":
        content = {"type": "text", "text": f"Greet {params['arguments']}"}
        result = {"messages": [{"role": "user", "content": content}]}
    elif method == "resources/read" and params["uri"] == "note://one":
        token = os.environ.get("TOKEN", "")  # noqa: TID251 (a program of its own)
        result = {"contents": [{"uri": "note://one", "text": f"the first note {token}"}]}
    else:
        send(id=id_, error={"code": -32601, "message": "no"})
    if result is not None:
        send(id=id_, result={"resultType": "complete", **result})
