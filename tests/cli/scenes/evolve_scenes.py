"""Options of `evolve`."""

from tests.cli.scenes.scene import JSON, Change, Scene, Scenes, hides, shows

_OTHER = "--agent other"
_NOWHERE = shows("--agent nowhere", "nowhere")
_APPLIED = "file project/AGENTS.md 100644\nYou answer customers.\n\nRefunds: say 14 days.\nShipping"
_PROGRAM = hides("--program", "proposal")
_OF: dict[str, Change] = {
    "--agent": hides(_OTHER, "proposal"),
    "--program": _PROGRAM,
}
SCENES: Scenes = {
    "evolve init": Scene(
        place="evolving",
        options={
            "--agent": shows("--agent other", "file project/other/evolve.yaml"),
            "--suite": hides("--suite support", "suite: second", "--agent other"),
            "--improver": shows("--improver ollama:special", "ollama:special", "--agent other"),
        },
    ),
    "evolve status": Scene(
        place="promoted",
        options={
            "--json": JSON,
            "--agent": hides(_OTHER, "version 2"),
            "--program": hides("--program", "version 2"),
        },
    ),
    "evolve history": Scene(place="promoted", options={"--json": JSON, **_OF}),
    "evolve show": Scene(
        place="promoted",
        options={
            "--json": JSON,
            "--html": shows("--html out.html", "<html"),
            "--agent": hides(_OTHER, "$campaign"),
            "--program": hides("--program", "$campaign"),
        },
    ),
    "evolve diff": Scene(
        place="promoted",
        base="1",
        options={
            "--agent": hides(_OTHER, "+Shipping"),
            "--program": hides("--program", "+Shipping"),
        },
    ),
    "evolve export": Scene(
        place="promoted",
        base="out.jsonl",
        options={
            "--agent": _NOWHERE,
            "--program": shows("--program", "there is no program.md", "out.jsonl --agent other"),
        },
    ),
    "evolve import": Scene(
        place="promoted",
        base="exported.jsonl",
        options={"--agent": _NOWHERE},
    ),
    "evolve promote": Scene(
        place="evolved",
        base="--yes",
        options={
            "--yes": shows("--yes", "exit 0", ""),
            "--share": shows("--share 0.5", '"share":0.5'),
            "--agent": hides(_OTHER, "version 2"),
            "--program": hides("--program", "version 2"),
        },
    ),
    "evolve rollback": Scene(
        place="promoted",
        options={
            "--reason": shows("--reason special", "special"),
            "--agent": hides(_OTHER, "version 1 is in use"),
            "--program": hides("--program", "version 1 is in use"),
        },
    ),
    "evolve pause": Scene(
        place="promoted",
        options={
            "--off": shows("--off", "allowed"),
            "--reason": shows("--reason special", "special"),
            "--agent": shows(_OTHER, "/other"),
            "--program": shows("--program", "program"),
        },
    ),
    "evolve learn": Scene(place="promoted", options={"--json": JSON, "--agent": _NOWHERE}),
    "evolve watch": Scene(place="promoted", options={"--json": JSON, "--agent": _NOWHERE}),
    "evolve propose": Scene(
        place="evolved",
        base="change --calls 4",
        options={
            "--json": JSON,
            "--agent": shows(_OTHER, "/other"),
            "--program": shows("--program", "solve.py"),
            "--calls": shows("--calls 4", "exit 1", "change"),
            "--preset": shows("--preset repair-only", '"preset":"repair-only"'),
            "--apply": shows("--apply", _APPLIED, "change"),
        },
    ),
    "evolve propose #unconfined": Scene(
        place="unconfined evals",
        base="change",
        options={"--no-sandbox": hides("--no-sandbox", "the right answers score 0%")},
    ),
    "evolve run": Scene(
        place="evolved",
        base="--dry-run",
        options={
            "--json": JSON,
            "--agent": hides(_OTHER, "15 sealed"),
            "--program": hides("--program", "sealed"),
            "--calls": shows("--calls 77", "77"),
            "--dry-run": shows("--dry-run", "sealed", "--calls 4"),
            "--resume": shows("--resume $campaign", "$campaign", "--calls 4"),
            "--improver": shows("--improver scripted:special.yaml", "special", "--calls 4"),
            "--preset": shows("--preset repair-only", '"preset":"repair-only"', "--calls 4"),
            "--apply": shows("--apply", _APPLIED, ""),
        },
    ),
    "evolve run #long": Scene(
        place="evolving", options={"--minutes": shows("--minutes 0.01", "minutes")}
    ),
    "evolve run #uncommitted": Scene(
        place="uncommitted",
        base="--calls 4",
        options={"--allow-dirty": hides("--allow-dirty", "not committed")},
    ),
    "evolve run #unconfined": Scene(
        place="unconfined evals",
        base="--calls 40",
        options={"--no-sandbox": hides("--no-sandbox", "the right answers score 0%")},
    ),
}
