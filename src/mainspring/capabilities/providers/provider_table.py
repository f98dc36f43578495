"""The providers of models: addresses, variables of their keys, and hints about failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from mainspring.core.events import ErrorDetail

ANTHROPIC_KEY_VARIABLE = "ANTHROPIC_API_KEY"


class Provider(Struct, frozen=True, kw_only=True):
    speaks: Literal["anthropic", "chat", "responses"]
    url: str
    key: str | None = None
    """The variable that holds its key; local servers need none."""
    address: str | None = None
    """The variable that overrides `url`."""
    model: str | None = None
    """The default model."""
    small: str | None = None
    """A cheap model for simple work."""


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        speaks="anthropic",
        url="https://api.anthropic.com/v1",
        key=ANTHROPIC_KEY_VARIABLE,
        address="ANTHROPIC_BASE_URL",
        model="sonnet",
        small="haiku",
    ),
    "openai": Provider(
        speaks="responses",
        url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        address="OPENAI_BASE_URL",
        model="gpt",
        small="openai:gpt-5-mini",
    ),
    "gemini": Provider(
        speaks="chat",
        url="https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        address="GEMINI_BASE_URL",
        model="gemini",
        small="gemini:gemini-3.5-flash-lite",
    ),
    "openrouter": Provider(
        speaks="chat",
        url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        address="OPENROUTER_BASE_URL",
    ),
    "ollama": Provider(speaks="chat", url="http://127.0.0.1:11434/v1", address="OLLAMA_BASE_URL"),
    "vllm": Provider(speaks="chat", url="http://127.0.0.1:8000/v1", address="VLLM_BASE_URL"),
    "lmstudio": Provider(
        speaks="chat", url="http://127.0.0.1:1234/v1", address="LMSTUDIO_BASE_URL"
    ),
    "llamacpp": Provider(
        speaks="chat", url="http://127.0.0.1:8080/v1", address="LLAMACPP_BASE_URL"
    ),
}


def hint_for(error: ErrorDetail) -> str | None:
    """What to do about the failure of a model. The error begins with the model's name."""
    name = error.message.partition(":")[0]
    provider = PROVIDERS.get(name)
    if error.failure is None or provider is None:
        return None
    hint = _HINTS.get(error.failure)
    if provider.key is None:
        hint = _LOCAL_HINTS.get(error.failure, hint)
    if hint is None:
        return None
    start = "`ollama serve` starts it" if name == "ollama" else f"start the {name} server"
    load = "`ollama pull NAME` gets it" if name == "ollama" else f"load it in the {name} server"
    return hint.format(key=provider.key, address=provider.address, start=start, load=load)


_FALLBACK = "--model A,B names a model that answers if A does not"
_HINTS: Mapping[str, str] = {
    "unauthorized": "{key} is wrong or revoked: export the right one",
    "forbidden": "the key in {key} may not use this model: choose another with --model, or have it"
    " allowed at the provider",
    "not_found": "the provider has no such model: `mainspring models ls` lists names",
    "billing": "add credit at the provider, or choose another model with --model",
    "rate_limited": f"the limit of your account is reached: try again later; {_FALLBACK}",
    "overloaded": f"the provider has too much to do: try again later; {_FALLBACK}",
    "server": f"the provider has a problem: try again later; {_FALLBACK}",
    "timeout": "the provider or the network is too slow: check the network and HTTPS_PROXY;"
    f" {_FALLBACK}",
    "refused": "no server listens there: check {address} and HTTPS_PROXY",
    "connection": "the connection was lost: check the network and HTTPS_PROXY",
    "unresolved": "check the network, and the name of the host in {address}",
    "certificate": "SSL_CERT_FILE names the certificate of your company's authority; if {address}"
    " is set, check it",
    "prompt_too_long": "use a model with a larger context window, or start a new session",
    "media_too_large": "send a smaller image or document",
    "invalid_request": "`mainspring models test NAME` sends the model a small request",
}
_LOCAL_HINTS: Mapping[str, str] = {
    "unauthorized": "the server at {address} asks for a key; OPENROUTER_BASE_URL and"
    " OPENROUTER_API_KEY are for servers with keys",
    "forbidden": "the server at {address} does not let you use it",
    "not_found": "the server has no such model, or {address} lacks /v1: {load}",
    "rate_limited": f"the server has too many requests: try again later; {_FALLBACK}",
    "server": f"see the log of the server; {_FALLBACK}",
    "refused": "{start}; {address} names another address",
    "timeout": "the server at {address} is too slow, or not there",
    "prompt_too_long": "start the server with a larger context, or use another model",
}
