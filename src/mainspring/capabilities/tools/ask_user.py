"""The ask_user tool: questions that a person answers. The client runs it; the session waits.

The format is that of Claude Code's AskUserQuestion, so clients of that tool can display it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

from msgspec import Meta, Struct

from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import filtered


class Option(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(min_length=1, max_length=100, description="1 to 5 words.")]
    description: Annotated[str, Meta(description="What choosing it means.")] = ""


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    question: Annotated[str, Meta(min_length=1, description="The whole question.")]
    header: Annotated[str, Meta(min_length=1, max_length=30, description="A word or two.")]
    options: Annotated[list[Option], Meta(min_length=2, max_length=4)]
    multi_select: Annotated[bool, Meta(description="Whether several can be chosen.")] = False


def _ask_user(questions: Annotated[list[Question], Meta(min_length=1, max_length=4)]) -> None:
    """Ask the user, and wait for the answer: when the request is not clear, when an action could
    destroy or disclose something, or when there is a choice that only they can make. They can
    always answer in their own words instead of choosing an option.

    Args:
        questions: 1 to 4 questions, each with 2 to 4 options.
    """


def _refusal(args: Mapping[str, object]) -> str | None:
    questions = cast("list[Mapping[str, object]]", args["questions"])
    texts = [question["question"] for question in questions]
    if len(set(texts)) < len(texts):
        return "The input is not valid:\n- questions: two of them are the same"
    for at, question in enumerate(questions):
        options = cast("list[Mapping[str, object]]", question["options"])
        labels = [option["label"] for option in options]
        if len(set(labels)) < len(labels):
            return f"The input is not valid:\n- questions[{at}].options: two have the same label"
    return None


_ASKED = filtered(tool(_ask_user, name="ask_user"), _refusal)
ASK_USER = _ASKED.spec
"""The spec of a tool that clients run."""


def _exit_plan_mode(plan: Annotated[str, Meta(min_length=1, max_length=50_000)]) -> None:
    """Present your plan in the permission mode plan, and wait until the user approves it or says
    what to change. Call it only when the plan is complete, not to ask questions.

    Args:
        plan: the steps, their order, and how you will check the result, as Markdown.
    """


_PLAN = tool(_exit_plan_mode, name="exit_plan_mode")
EXIT_PLAN = _PLAN.spec
"""The spec of a tool that clients run."""

CLIENT_INPUT_CHECKS = {item.spec.name: item.invalid for item in (_ASKED, _PLAN)}
"""The problem with an input, as text for the model, so that no invalid question is displayed."""
