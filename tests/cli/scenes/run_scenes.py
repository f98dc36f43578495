"""Options of `run` and `chat`, with their requests to the model."""

from tests.cli.scenes.scene import JSON, Change, Scene, Scenes, hides, refuses, shows

_STREAM = "hi --output-format stream-json"
_MESSAGE = '{"type": "user", "message": {"role": "user", "content": "hi"}}\n'
_UNSANDBOXED = shows("--dangerously-run-unsandboxed", '"name": "bash"')
_SESSION: dict[str, Change] = {
    "--agent": shows("--agent other", "You are a cook."),
    "--model": shows("--model ollama:special", '"model": "special"'),
    "--max-turns": shows("--max-turns 1", '"max_turns":1', "--resume $asked"),
    "--max-cost": shows("--max-cost 0.000001", "budget"),
    "--mode": shows("--mode plan", '"mode":"plan"'),
    "--workspace": shows("--workspace other", "at/project/other;"),
    "--worktree": shows("--worktree special", ".mainspring/worktrees/special"),
    "-w": refuses("-w", "write --workspace DIR or --worktree"),
    "--no-memory": hides("--no-memory", "memory_read"),
    "--allow-protected": shows("--allow-protected .vscode/settings.json", "allowProtected"),
    "--allowedTools": shows("--allowedTools Edit", '"behavior":"allow"'),
    "--disallowedTools": shows("--disallowedTools Read", '"behavior":"deny"'),
    "--system-prompt": shows("--system-prompt special", "special"),
    "--append-system-prompt": shows("--append-system-prompt special", "special"),
    "--tools": hides("--tools Read", '"name": "write"'),
}
SCENES: Scenes = {
    "run": Scene(
        place="conversations",
        base="hi",
        options={
            **_SESSION,
            "--max-turns": shows("--max-turns 1", "exit 4", "loop --model scripted:loop.yaml"),
            "--resume": shows("--resume $first", "first question"),
            "--continue": shows("--continue", "second question"),
            "--fork-session": hides("--fork-session", "$first", "hi --resume $first"),
            "--json": JSON,
            "--print": hides("--print", "turn"),
            "--output-format": shows("--output-format json", '"subtype":"success"'),
            "--input-format": Change(
                "--input-format stream-json",
                hides='{\\"type\\"',
                base="--output-format stream-json",
                stdin=_MESSAGE,
            ),
            "--include-partial-messages": shows(
                "--include-partial-messages", "content_block_delta", _STREAM
            ),
            "--verbose": refuses("--verbose", "needs --output-format stream-json"),
            "--permission-prompt-tool": refuses(
                "--permission-prompt-tool other", "can only be stdio"
            ),
            "--outcome": shows("--outcome rubric.md", "outcome: "),
            "--max-iterations": shows(
                "--max-iterations 7", "up to 7 gradings", "hi --outcome rubric.md"
            ),
        },
    ),
    "run #failing": Scene(
        place="failing",
        base="hi",
        options={"--retry-seconds": shows("--retry-seconds 5", "Here I am.")},
    ),
    "run #unconfined": Scene(
        place="unconfined",
        base="hi",
        options={"--dangerously-run-unsandboxed": _UNSANDBOXED},
    ),
    "chat #failing": Scene(
        place="failing",
        stdin="hi\n",
        options={"--retry-seconds": shows("--retry-seconds 5", "Here I am.")},
    ),
    "chat #unconfined": Scene(
        place="unconfined",
        stdin="hi\n",
        options={"--dangerously-run-unsandboxed": _UNSANDBOXED},
    ),
    "chat": Scene(
        place="conversations",
        stdin="hi\n",
        options={
            **_SESSION,
            "--max-turns": Change(
                "--max-turns 1",
                shows="max turns",
                base="--model scripted:loop.yaml",
                stdin="loop\n",
            ),
            "--resume": shows("--resume $first", "first question"),
            "--continue": shows("--continue", "second question"),
            "--fork-session": hides("--fork-session", "--resume $first_end", "--resume $first"),
        },
    ),
}
