"""The options that `mainspring run` and `mainspring chat` share, and those of `run` alone: of
`-p`, and for an outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission, PermissionUpdate, RuleText
from mainspring.edges.cli.options import parse_dollars
from mainspring.edges.cli.session_lookup import LAST_SESSION
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.permissions.rule import parse_rule
from mainspring.harness.permissions.tool_names import (
    BUILTIN_TOOL_NAMES,
    canonical_name,
    is_tool_name,
)
from mainspring.runtime.definition_files.frontmatter_fields import split
from mainspring.runtime.run_options import RunOptions

_MAX_RUBRIC_BYTES = 100_000  # about 25,000 tokens, which every grading reads


def parse_limit(text: str) -> Decimal:
    amount = parse_dollars(text.strip())
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter(f"{text} is not an amount above 0")
    return amount


def _refuse_short_w(is_given: bool) -> bool:
    """Raises: BadParameter: it is given. In the next release it is short for `--worktree`."""
    if is_given:
        raise typer.BadParameter(
            "it was short for --workspace, and is a worktree for users of Claude Code: write"
            " --workspace DIR or --worktree [NAME]"
        )
    return is_given


ModeChoice: TypeAlias = Literal[
    "default", "plan", "acceptEdits", "auto", "dontAsk", "bypassPermissions"
]
"""As `Mode` of the harness, which is not imported for a help text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="DIR",
            help="The agent's folder: AGENTS.md or CLAUDE.md, and agent.yaml."
            " [default: this folder]",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The model; separate fallbacks with commas. [default: the agent's, else"
            " $MAINSPRING_MODEL, else one whose key is set]",
        ),
    ] = None
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            "-r",
            metavar="SESSION",
            help="Continue this session; `last` is the last one.",
        ),
    ] = None
    is_continued: Annotated[
        bool,
        typer.Option("--continue", "-c", help="Continue the last session, like --resume last."),
    ] = False
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", min=1, metavar="N", help="The most turns of the session."),
    ] = None
    max_cost: Annotated[
        Decimal | None,
        typer.Option(
            "--max-cost",
            "--max-budget-usd",
            parser=parse_limit,
            metavar="USD",
            help="The cost limit of the session.",
        ),
    ] = None
    mode: Annotated[
        ModeChoice | None,
        typer.Option(
            "--mode",
            "--permission-mode",
            help="What the agent may do without asking. [default: from the settings, else default]",
            show_choices=True,
        ),
    ] = None
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            metavar="DIR",
            help="The folder to work in; the agent can change nothing else. [default: this folder]",
        ),
    ] = None
    short_w: Annotated[
        bool, typer.Option("-w", hidden=True, is_eager=True, callback=_refuse_short_w)
    ] = False
    worktree: Annotated[
        str | None,
        typer.Option(
            "--worktree",
            metavar="[NAME]",
            help="Work in a git worktree, on the branch mainspring/NAME; without a name, in a"
            " new worktree.",
        ),
    ] = None
    unsandboxed: Annotated[
        bool,
        typer.Option(
            "--dangerously-run-unsandboxed",
            help="If no sandbox works, run commands anyway, with all your permissions.",
        ),
    ] = False
    no_memory: Annotated[
        bool,
        typer.Option(
            "--no-memory",
            help="Do not read or write memories in this session, even if it continues later.",
        ),
    ] = False
    allow_protected: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-protected",
            metavar="PATH",
            help="Let the file tools change this protected file, such as .vscode/settings.json,"
            " without asking. Can be repeated; recorded in the session.",
        ),
    ] = None
    retry_seconds: Annotated[
        float | None,
        typer.Option(
            "--retry-seconds",
            min=0,
            metavar="SECONDS",
            help="How long to wait for a model that does not answer; 0: fail at once."
            " [default: $MAINSPRING_MODEL_RETRY_SECONDS, else 600]",
        ),
    ] = None
    allowed_tools: Annotated[
        list[str] | None,
        typer.Option(
            "--allowedTools",
            "--allowed-tools",
            metavar="RULES",
            help='Allow these calls in the session: "Bash(git log *),Edit".',
        ),
    ] = None
    disallowed_tools: Annotated[
        list[str] | None,
        typer.Option(
            "--disallowedTools",
            "--disallowed-tools",
            metavar="RULES",
            help="Deny these calls in the session.",
        ),
    ] = None
    system_prompt: Annotated[
        str | None,
        typer.Option("--system-prompt", metavar="TEXT", help="Replace the agent's instructions."),
    ] = None
    append_system_prompt: Annotated[
        str | None,
        typer.Option(
            "--append-system-prompt", metavar="TEXT", help="Add to the agent's instructions."
        ),
    ] = None
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools",
            metavar="NAMES",
            help="The built-in tools to use, separated by commas; or default.",
        ),
    ] = None
    fork_session: Annotated[
        bool,
        typer.Option(
            "--fork-session",
            help="With --resume or --continue: continue in a fork of the session.",
        ),
    ] = False

    def applied_to(self, settings: Settings) -> Settings:
        if self.retry_seconds is None:
            return settings
        return replace(settings, model_retry_seconds=str(self.retry_seconds))

    def session(self) -> str | None:
        """The session to continue, as `find_session` takes it.

        Raises: BadParameter: the options cannot be combined.
        """
        if self.is_continued and self.resume is not None:
            raise typer.BadParameter("use either --continue or --resume")
        session = LAST_SESSION if self.is_continued else self.resume
        if self.fork_session and session is None:
            raise typer.BadParameter("--fork-session needs --resume or --continue")
        return session

    def permission_updates(self) -> tuple[PermissionUpdate, ...]:
        """The rules of `--allowedTools` and `--disallowedTools`.

        Raises: InvalidInput: a rule is malformed.
        """
        options: dict[Permission, list[str] | None] = {
            "allow": self.allowed_tools,
            "deny": self.disallowed_tools,
        }
        return tuple(
            PermissionUpdate(type="addRules", behavior=behavior, rules=rules)
            for behavior, texts in options.items()
            if (rules := tuple(_rules(texts or ())))
        )

    def built_ins(self) -> tuple[str, ...] | None:
        """Raises: BadParameter: there is no such tool."""
        if self.tools is None or self.tools == "default":
            return None
        names = split(self.tools, ", \t\n")
        unknown = [name for name in names if "(" in name or not is_tool_name(name)]
        if unknown:
            raise typer.BadParameter(
                f"--tools: there is no built-in tool {unknown[0]}; there are"
                f" {', '.join(sorted(BUILTIN_TOOL_NAMES))}"
            )
        return tuple(map(canonical_name, names))

    def options(self) -> RunOptions:
        return RunOptions(
            agent=None if self.agent is None else Path(self.agent),
            model=self.model,
            max_turns=self.max_turns,
            max_cost_usd=self.max_cost,
            instructions=self.system_prompt,
            more_instructions=self.append_system_prompt or "",
            built_ins=self.built_ins(),
            mode=self.mode,
            workspace=None if self.workspace is None else Path(self.workspace),
            is_unsandboxed=self.unsandboxed,
            memory_mode="off" if self.no_memory else "on",
            allow_protected=tuple(self.allow_protected or ()),
        )


def _rules(texts: Iterable[str]) -> Iterator[RuleText]:
    for text in (rule for joined in texts for rule in split(joined, ", \t\n")):
        rule = parse_rule(text)
        yield RuleText(tool_name=text.partition("(")[0], rule_content=rule.specifier)


STDIO = "stdio"
STREAM_JSON = "stream-json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintArguments:
    """The options of Claude Code that scripts use."""

    is_print: Annotated[
        bool,
        typer.Option(
            "--print", "-p", help="Print only the result. Calls that need approval are denied."
        ),
    ] = False
    output_format: Annotated[
        Literal["text", "json", "stream-json"] | None,
        typer.Option(
            "--output-format",
            help="With -p: the final text, one JSON object, or JSON lines as they arrive.",
        ),
    ] = None
    input_format: Annotated[
        Literal["text", "stream-json"] | None,
        typer.Option(
            "--input-format", help="With -p: text, or messages as JSON lines on standard input."
        ),
    ] = None
    with_partial_messages: Annotated[
        bool,
        typer.Option(
            "--include-partial-messages",
            help="With stream-json: also print the parts of replies as they arrive.",
        ),
    ] = False
    verbose: Annotated[bool, typer.Option("--verbose", hidden=True)] = False
    """Claude Code requires it with stream-json, which prints the same without it here."""
    permission_prompt_tool: Annotated[
        str | None,
        typer.Option(
            "--permission-prompt-tool",
            metavar="stdio",
            help="With --input-format stream-json: ask the program that started this process.",
        ),
    ] = None

    @property
    def is_printed(self) -> bool:
        return self.is_print or self.output_format is not None or self.input_format is not None

    @property
    def is_stream(self) -> bool:
        return self.output_format == STREAM_JSON

    @property
    def is_streamed_in(self) -> bool:
        return self.input_format == STREAM_JSON

    def check(self, prompt: str | None, *, json: bool) -> None:
        """Raises: BadParameter: the options cannot be combined, or need one that is missing."""
        if json and self.is_printed:
            raise typer.BadParameter(
                "--json prints the events of a session, and -p the result for a script: use"
                " --output-format json or stream-json with -p"
            )
        if self.permission_prompt_tool not in (None, STDIO):
            raise typer.BadParameter("--permission-prompt-tool can only be stdio")
        for_stream = {
            "--input-format stream-json": self.is_streamed_in,
            "--include-partial-messages": self.with_partial_messages,
            "--verbose": self.verbose,
        }
        for option in (
            name for name, is_set in for_stream.items() if is_set and not self.is_stream
        ):
            raise typer.BadParameter(f"{option} needs --output-format stream-json")
        if self.permission_prompt_tool is not None and not self.is_streamed_in:
            raise typer.BadParameter("--permission-prompt-tool needs --input-format stream-json")
        if self.is_streamed_in and prompt is not None:
            raise typer.BadParameter(
                "with --input-format stream-json, messages come from standard input: omit PROMPT"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeArguments:
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="FILE",
            help="A rubric: the work is graded by it, and revised until it meets it. A line `-"
            " run: COMMAND` is a command that must succeed.",
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(
            "--max-iterations",
            min=1,
            max=20,
            metavar="N",
            help="How often to grade at most. [default: 3]",
        ),
    ] = None

    def check(self, text: str | None, *, is_defined: bool) -> None:
        """`is_defined`: whether the agent has a rubric for a new session.

        Raises: BadParameter: there is nothing to grade.
        """
        if self.outcome is not None and text is None:
            raise typer.BadParameter("--outcome needs PROMPT: the work that is graded")
        has_rubric = self.outcome is not None or (is_defined and text is not None)
        if self.max_iterations is not None and not has_rubric:
            raise typer.BadParameter("--max-iterations needs --outcome")

    def rubric(self, settings: Settings) -> str | None:
        """Raises: InvalidInput."""
        if self.outcome is None:
            return None
        content = read_bounded(Path(settings.folder, self.outcome), max_bytes=_MAX_RUBRIC_BYTES)
        if content is None:
            raise InvalidInput(f"--outcome {self.outcome}: there is no such file")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"--outcome {self.outcome}: not UTF-8 text") from error
