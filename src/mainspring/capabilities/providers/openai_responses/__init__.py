"""The OpenAI Responses API."""

from mainspring.capabilities.providers.openai_responses.client import ResponsesModel

__all__ = ["ResponsesModel"]
