"""Public: hooks and guardrails that are functions, and authorizers for whole runtimes."""

from mainspring.core.hook import HookEvent, HookResult
from mainspring.harness.answer_checks import AnswerCheck
from mainspring.harness.authorizer import AllowAll, Authorizer, Decision
from mainspring.harness.function_hooks import FunctionHook, guardrail, hook
from mainspring.harness.stop_reasons import Continue, Ended

__all__ = [
    "AllowAll",
    "AnswerCheck",
    "Authorizer",
    "Continue",
    "Decision",
    "Ended",
    "FunctionHook",
    "HookEvent",
    "HookResult",
    "guardrail",
    "hook",
]
