"""The options that `mainspring run` and `mainspring chat` share, and those of `run` alone: of
`-p`, and for an outcome."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.options import parse_dollars
from mainspring.edges.cli.session_lookup import LAST_SESSION
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions

_MAX_RUBRIC_BYTES = 100_000


def parse_limit(text: str) -> Decimal:
    amount = parse_dollars(text.strip())
    if not amount.is_finite() or amount <= 0:
        raise typer.BadParameter(f"{text} is not an amount above 0")
    return amount


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
            "-w",
            metavar="DIR",
            help="The folder to work in; the agent can change nothing else. [default: this folder]",
        ),
    ] = None
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

    def applied_to(self, settings: Settings) -> Settings:
        if self.retry_seconds is None:
            return settings
        return replace(settings, model_retry_seconds=self.retry_seconds)

    def session(self) -> str | None:
        """The session to continue, as `find_session` takes it."""
        if self.is_continued and self.resume is not None:
            raise typer.BadParameter("use either --continue or --resume")
        return LAST_SESSION if self.is_continued else self.resume

    def options(self) -> RunOptions:
        return RunOptions(
            agent=None if self.agent is None else Path(self.agent),
            model=self.model,
            max_turns=self.max_turns,
            max_cost_usd=self.max_cost,
            mode=self.mode,
            workspace=None if self.workspace is None else Path(self.workspace),
            is_unsandboxed=self.unsandboxed,
            memory_mode="off" if self.no_memory else "on",
            allow_protected=tuple(self.allow_protected or ()),
        )


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
    """Claude Code requires it with stream-json; it has no effect here."""
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
    permission_prompt_tool: Annotated[
        str | None,
        typer.Option(
            "--permission-prompt-tool",
            metavar="stdio",
            help="With --input-format stream-json: ask the program that started this process.",
        ),
    ] = None
    fork_session: Annotated[
        bool,
        typer.Option("--fork-session", help="With --resume: continue in a fork of the session."),
    ] = False

    def changed(self, agent: Agent) -> Agent:
        """The agent as these options change it."""
        instructions = agent.instructions if self.system_prompt is None else self.system_prompt
        if self.append_system_prompt:
            instructions = f"{instructions}\n\n{self.append_system_prompt}".strip()
        built_ins = agent.built_ins
        if self.tools is not None and self.tools != "default":
            built_ins = tuple(canonical_name(name) for name in self.tools.split(",") if name)
        return replace(agent, instructions=instructions, built_ins=built_ins)

    @property
    def is_printed(self) -> bool:
        return self.is_print or self.output_format is not None or self.input_format is not None

    @property
    def is_stream(self) -> bool:
        return self.output_format == STREAM_JSON

    def check(self, prompt: str | None) -> None:
        """Raises: BadParameter: the options cannot be combined."""
        if self.input_format == STREAM_JSON:
            if not self.is_stream:
                raise typer.BadParameter(
                    "--input-format stream-json needs --output-format stream-json"
                )
            if prompt is not None:
                raise typer.BadParameter(
                    "with --input-format stream-json, messages come from standard input: omit"
                    " PROMPT"
                )
        if self.permission_prompt_tool not in (None, STDIO):
            raise typer.BadParameter("--permission-prompt-tool can only be stdio")
        if self.with_partial_messages and not self.is_stream:
            raise typer.BadParameter("--include-partial-messages needs --output-format stream-json")


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
