"""Hooks: from settings of Claude Code and Kiro, or Python functions, run at defined events."""

from mainspring.capabilities.hooks.command import HookEnvironment
from mainspring.capabilities.hooks.config import HookConfig, Scope, parse_hooks
from mainspring.capabilities.hooks.handlers import HandlerPorts, PythonHook, on
from mainspring.capabilities.hooks.kiro import parse_kiro
from mainspring.capabilities.hooks.runner import HookPolicy, HookRunner, HookSession

__all__ = [
    "HandlerPorts",
    "HookConfig",
    "HookEnvironment",
    "HookPolicy",
    "HookRunner",
    "HookSession",
    "PythonHook",
    "Scope",
    "on",
    "parse_hooks",
    "parse_kiro",
]
