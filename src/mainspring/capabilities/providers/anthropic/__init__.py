"""The Anthropic Messages API."""

from mainspring.capabilities.providers.anthropic.client import AnthropicModel

__all__ = ["AnthropicModel"]
