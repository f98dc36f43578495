"""Options of commands that read and change sessions."""

from tests.cli.scenes.scene import JSON, Json, Scene, Scenes, hides, refuses, shows

_OUTPUT = shows("--output out.txt", "file project/out.txt")
SCENES: Scenes = {
    "log ls": Scene(
        place="sessions", options={"--json": JSON, "--limit": hides("--limit 1", "first question")}
    ),
    "log show": Scene(
        place="sessions",
        base="$first",
        options={
            "--json": JSON,
            "--after": hides("--after 3", "session.created"),
            "--type": hides("--type user.message", "session.created"),
            "--thread": hides("--thread sthr_none", "session.created"),
            "--tail": hides("--tail 2", "session.created"),
        },
    ),
    "log follow": Scene(
        place="sessions",
        base="$first",
        options={"--json": JSON, "--after": hides("--after 3", "session.created")},
    ),
    "log search": Scene(
        place="sessions",
        base="question",
        options={
            "--json": JSON,
            "--session": hides("--session $second", "first question"),
            "--limit": hides("--limit 1", "third question"),
        },
    ),
    "log verify": Scene(
        place="sessions", base="$first", options={"--json": JSON, "--all": shows("--all", "3", "")}
    ),
    "log export": Scene(place="sessions", base="$first", options={"--output": _OUTPUT}),
    "log import": Scene(place="exported", base="second.jsonl", options={"--json": JSON}),
    "log expire": Scene(
        place="old",
        base="--older-than 1m --yes",
        options={
            "--json": JSON,
            "--older-than": hides("--older-than 1m", "Missing option", "--yes"),
            "--yes": shows("--yes", "exit 0", "--older-than 1m"),
        },
    ),
    "log rm": Scene(
        place="sessions",
        base="$first --yes",
        options={
            "--json": Json("$second --yes"),
            "--cascade": hides("--cascade", "first question"),
            "--yes": shows("--yes", "exit 0", "$second"),
        },
    ),
    "sessions ls": Scene(
        place="sessions",
        options={
            "--json": JSON,
            "--limit": hides("--limit 1", "first question"),
            "--origin": hides("--origin eval", "first question"),
            "--all": refuses("--all", "either --origin or --all", "--origin eval"),
        },
    ),
    "sessions rm": Scene(
        place="sessions",
        base="$first --yes",
        options={
            "--json": Json("$second --yes"),
            "--cascade": hides("--cascade", "first question"),
            "--yes": shows("--yes", "exit 0", "$second"),
        },
    ),
    "sessions fork": Scene(
        place="sessions",
        base="$first",
        options={
            "--json": JSON,
            "--at": hides("--at 3", "from event 33"),
            "--title": shows("--title special", "special"),
        },
    ),
    "sessions search": Scene(
        place="sessions",
        base="question",
        options={"--json": JSON, "--limit": hides("--limit 1", "third question")},
    ),
    "sessions snapshots": Scene(place="sessions", base="$first", options={"--json": JSON}),
    "sessions diff": Scene(
        place="sessions",
        base="$first",
        options={
            "--json": JSON,
            "--from": hides("--from 30", "+written"),
            "--to": hides("--to 3", "+written"),
            "--names": hides("--names", "+written"),
        },
    ),
    "sessions rewind": Scene(
        place="sessions",
        base="$first --to 3 --yes",
        options={
            "--json": JSON,
            "--to": shows("--to 3", "after event 3", "$first --yes"),
            "--turns": shows("--turns 1", "after event 28", "$first --yes"),
            "--files-only": hides("--files-only", "continue: mainspring run"),
            "--dry-run": hides("--dry-run", "continue: mainspring run"),
            "--yes": shows("--yes", "exit 0", "$first --to 3"),
        },
    ),
    "sessions export": Scene(
        place="sessions",
        base="$first",
        options={"--format": shows("--format html", "<html"), "--output": _OUTPUT},
    ),
    "sessions import": Scene(
        place="transcripts",
        base="transcript.jsonl",
        options={
            "--json": JSON,
            "--from": shows("--from codex", "has no messages"),
            "--list": hides("--list", '"type":"import"'),
        },
    ),
    "context show": Scene(
        place="sessions",
        base="$first",
        options={
            "--json": JSON,
            "--call": shows("--call 1", "call 1"),
            "--raw": shows("--raw", '"messages"', "$first --call 1"),
        },
    ),
    "cost": Scene(
        place="sessions",
        options={
            "--json": JSON,
            "--by": shows("--by model", "test"),
            "--price": shows("--price write=0.5", "0.5", "--by tool"),
        },
    ),
    "insights": Scene(
        place="old",
        options={
            "--json": JSON,
            "--since": hides("--since 12h", "1 session"),
        },
    ),
    "slo": Scene(place="old", options={"--json": JSON, "--since": hides("--since 12h", "0.0")}),
    "replay": Scene(
        place="sessions",
        base="$first",
        options={
            "--json": JSON,
            "--from": shows("--from 30", "forked at event 27", "$first --model ollama:other"),
            "--model": shows("--model ollama:other", '"model": "other"', "$first --from 5"),
            "--prompt": shows(
                "--prompt special", "special", "$first --from 5 --model ollama:other"
            ),
        },
    ),
    "test record": Scene(
        place="sessions", base="$first", options={"--output": shows("--output rec", "project/rec")}
    ),
    "policy test": Scene(
        place="sessions",
        base="deny.json --over $first",
        options={
            "--json": JSON,
            "--over": hides("--over $first", "exit 2", "deny.json"),
            "--all": hides("--all", "exit 2", "deny.json"),
        },
    ),
    "memory why": Scene(place="rated", base="last", options={"--json": JSON}),
    "validate": Scene(
        place="warning", options={"--json": JSON, "--strict": shows("--strict", "exit 1")}
    ),
    "agents diff": Scene(place="sessions", options={"--agent": shows("--agent other", "exit 1")}),
    "agents ls": Scene(place="sessions", options={"--json": JSON}),
    "agents show": Scene(place="sessions", options={"--json": JSON}),
    "agents rollback": Scene(
        place="versions",
        base="1",
        options={"--agent": shows("--agent other", "exit 0")},
    ),
    "init": Scene(
        place="empty",
        base="new --yes",
        options={
            "--json": JSON,
            "--name": shows("--name special", "name: special"),
            "--purpose": shows("--purpose special", "special"),
            "--model": shows("--model ollama:special", "ollama:special"),
            "--tools": shows("--tools read,grep", "grep"),
            "--mode": shows("--mode plan", "plan"),
            "--yes": shows("--yes", "exit 0", "new"),
        },
    ),
}
