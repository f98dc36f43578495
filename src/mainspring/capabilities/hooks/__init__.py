"""Hooks from settings files, run at defined events."""

from mainspring.capabilities.hooks.command import HookEnvironment
from mainspring.capabilities.hooks.config import HookConfig, Scope, parse_hooks
from mainspring.capabilities.hooks.handlers import HandlerPorts
from mainspring.capabilities.hooks.runner import HookPolicy, HookRunner, HookSession

__all__ = [
    "HandlerPorts",
    "HookConfig",
    "HookEnvironment",
    "HookPolicy",
    "HookRunner",
    "HookSession",
    "Scope",
    "parse_hooks",
]
