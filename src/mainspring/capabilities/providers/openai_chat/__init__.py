"""OpenAI's chat completions and the servers that speak them."""

from mainspring.capabilities.providers.openai_chat.client import ChatModel

__all__ = ["ChatModel"]
