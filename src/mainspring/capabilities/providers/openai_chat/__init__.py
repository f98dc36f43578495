"""OpenAI's chat completions API and compatible servers."""

from mainspring.capabilities.providers.openai_chat.client import ChatModel

__all__ = ["ChatModel"]
