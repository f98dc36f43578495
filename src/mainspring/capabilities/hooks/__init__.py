"""Hooks: settings of Claude Code and Kiro, or Python functions, asked at set moments."""

from mainspring.capabilities.hooks.ask import Ports
from mainspring.capabilities.hooks.command import Surroundings
from mainspring.capabilities.hooks.config import HookConfig, Scope, parse_hooks
from mainspring.capabilities.hooks.kiro import parse_kiro
from mainspring.capabilities.hooks.python import PythonHook, on
from mainspring.capabilities.hooks.runner import HookRunner, Policy, Session

__all__ = [
    "HookConfig",
    "HookRunner",
    "Policy",
    "Ports",
    "PythonHook",
    "Scope",
    "Session",
    "Surroundings",
    "on",
    "parse_hooks",
    "parse_kiro",
]
