"""Options of commands about memories, knowledge, skills and plugins."""

from tests.cli.scenes.scene import JSON, Json, Scene, Scenes, hides, shows

_NOTE = "project_release_day.md"
_USER = shows("--scope user", "file home/.mainspring/memory")
_IN_USER = hides("--scope user", "Thursdays")
_REASON = shows("--reason special", "special")
_YES_SKILL = shows("--yes", "exit 0", "draft --project")

SCENES: Scenes = {
    "memory add": Scene(
        place="memories",
        base="text --name note",
        options={
            "--json": JSON,
            "--name": hides("--name special", "Missing option", "text"),
            "--description": shows("--description special", "special"),
            "--type": shows("--type procedure", "type: procedure"),
            "--scope": shows("--scope user", "file home/.mainspring/memory/reference_note.md"),
            "--reason": _REASON,
        },
    ),
    "memory ls": Scene(place="memories", options={"--json": JSON, "--scope": _IN_USER}),
    "memory show": Scene(place="memories", base=_NOTE, options={"--scope": _IN_USER}),
    "memory search": Scene(
        place="memories",
        base="release",
        options={
            "--json": JSON,
            "--scope": _IN_USER,
            "--limit": hides("--limit 1", "release notes"),
        },
    ),
    "memory edit": Scene(
        place="memories",
        base=_NOTE,
        stdin="On Fridays.\n",
        options={
            "--json": JSON,
            "--scope": shows("--scope user", "there is no memory"),
            "--reason": _REASON,
        },
    ),
    "memory history": Scene(
        place="memories",
        options={
            "--json": JSON,
            "--scope": hides("--scope user", "release_day"),
            "--diff": shows("--diff", "+We release on Thursdays."),
        },
    ),
    "memory revert": Scene(
        place="memories",
        base="$version",
        options={
            "--json": JSON,
            "--scope": hides("--scope user", "exit 0"),
            "--reason": _REASON,
        },
    ),
    "memory forget": Scene(
        place="memories",
        base=_NOTE,
        options={
            "--json": JSON,
            "--scope": shows("--scope user", "there is no memory"),
            "--purge": hides("--purge", "We release on Thursdays."),
            "--reason": _REASON,
        },
    ),
    "memory export": Scene(
        place="memories", base="copy", options={"--scope": hides("--scope user", "copy/project")}
    ),
    "memory import": Scene(
        place="memories",
        base="notes",
        options={"--json": JSON, "--scope": shows("--scope user", "file home/.mainspring/memory/")},
    ),
    "memory doctor": Scene(
        place="unlisted", options={"--json": JSON, "--rebuild": shows("--rebuild", "indexed")}
    ),
    "memory encrypt": Scene(
        place="memories", options={"--scope": shows("--scope user", "home/.mainspring/memory")}
    ),
    "memory decrypt": Scene(
        place="memories", options={"--scope": shows("--scope user", "home/.mainspring/memory")}
    ),
    "memory propose": Scene(
        place="proposals",
        base=f"{_NOTE} --to team",
        options={
            "--to": hides("--to team", "Missing option", _NOTE),
            "--scope": shows("--scope user", "there is no memory"),
            "--reason": shows("--reason special", "special", "reference_notes.md --to team"),
        },
    ),
    "memory proposals": Scene(
        place="proposals",
        options={"--json": JSON, "--scope": hides("--scope agent", "add project")},
    ),
    "memory accept": Scene(
        place="proposals",
        base="$proposal",
        options={
            "--json": JSON,
            "--scope": shows("--scope agent", "exit 1"),
        },
    ),
    "memory accept #again": Scene(
        place="proposed_again",
        base="$proposal",
        options={"--replace": shows("--replace", "exit 0")},
    ),
    "memory reject": Scene(
        place="proposals",
        base="$proposal",
        options={"--scope": shows("--scope agent", "exit 1")},
    ),
    "memory stats": Scene(
        place="rated", options={"--json": JSON, "--type": hides("--type skill", "memory")}
    ),
    "memory vectors": Scene(place="memories", options={"--json": JSON}),
    "knowledge add": Scene(
        place="knowledge",
        base="guide.md",
        options={
            "--json": Json("other.md"),
            "--replace": shows("--replace", "exit 0", "sub/guide.md"),
        },
    ),
    "knowledge ls": Scene(place="knowledge", options={"--json": JSON}),
    "knowledge search": Scene(
        place="knowledge",
        base="goods",
        options={"--json": JSON, "--limit": hides("--limit 1", "First")},
    ),
    "skill new": Scene(
        place="skills",
        base="greet --description greets",
        options={
            "--json": JSON,
            "--description": shows("--description special", "special", "greet"),
            "--project": shows("--project", "file project/.mainspring/skills/greet/SKILL.md"),
            "--user": shows(
                "--user",
                "file home/.mainspring/skills/greet/SKILL.md",
                "greet --description greets --project",
            ),
        },
    ),
    "skill ls": Scene(place="skills", options={"--json": JSON}),
    "skill show": Scene(place="skills", base="draft", options={"--json": JSON}),
    "skill check": Scene(
        place="skills",
        base=".agents/skills/draft",
        options={"--json": Json("loose"), "--strict": shows("--strict", "exit 1", "loose")},
    ),
    "skill disable": Scene(place="skills", base="draft", options={"--json": JSON}),
    "skill enable": Scene(place="skills", base="draft", options={"--json": JSON}),
    "skill find": Scene(
        place="skills",
        base="drafts --in .agents/skills",
        options={
            "--json": JSON,
            "--in": hides("--in .agents/skills", "Missing option", "drafts"),
        },
    ),
    "skill install": Scene(
        place="skills",
        base="source --all --yes",
        options={
            "--json": JSON,
            "--only": shows("--only one", "exit 0", "source --yes"),
            "--all": shows("--all", "exit 0", "source --yes"),
            "--project": shows("--project", "file project/.mainspring/skills/one"),
            "--user": shows(
                "--user", "file home/.mainspring/skills/one", "source --all --yes --project"
            ),
            "--replace": shows("--replace", "exit 0", "source-of-mine --yes"),
            "--yes": shows("--yes", "exit 0", "source --only one"),
            "--trust-anyway": shows("--trust-anyway", "exit 0", "danger --yes"),
        },
    ),
    "skill remove": Scene(
        place="skills",
        base="draft --project --yes",
        options={
            "--json": JSON,
            "--project": hides("--project", "removed", "mine --yes"),
            "--user": shows("--user", "removed mine", "mine --yes --project"),
            "--yes": _YES_SKILL,
        },
    ),
    "skill scan": Scene(
        place="skills",
        base="draft",
        options={
            "--json": JSON,
            "--trust": shows("--trust", "trusted", "draft --yes"),
            "--yes": shows("--yes", "exit 0", "draft --trust"),
            "--trust-anyway": shows("--trust-anyway", "exit 0", "danger --trust --yes"),
        },
    ),
    "plugin install": Scene(
        place="plugins",
        base="$reports --yes",
        options={
            "--json": JSON,
            "--plugin": shows("--plugin $of_market", "exit 0", "$market --yes"),
            "--project": shows("--project", "project/.mainspring/plugins"),
            "--replace": shows("--replace", "exit 0", "$deploy --yes"),
            "--yes": shows("--yes", "exit 0", "$reports"),
            "--trust-anyway": shows("--trust-anyway", "exit 0", "danger --yes"),
        },
    ),
    "plugin ls": Scene(place="plugins", options={"--json": JSON}),
    "plugin show": Scene(
        place="plugins",
        base="deploy-tools",
        options={"--json": JSON, "--project": shows("--project", "exit 1")},
    ),
    "plugin remove": Scene(
        place="plugins",
        base="deploy-tools --yes",
        options={
            "--json": JSON,
            "--project": shows("--project", "exit 1"),
            "--yes": shows("--yes", "exit 0", "deploy-tools"),
        },
    ),
}
