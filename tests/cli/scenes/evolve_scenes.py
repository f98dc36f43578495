"""Options of `evolve`. No campaign is run: that takes seconds."""

from tests.cli.scenes.scene import JSON, Scene, Scenes, hides, shows

_AGENT = hides("--agent other", "support")
SCENES: Scenes = {
    "evolve init": Scene(
        place="evolving",
        options={
            "--agent": shows("--agent other", "file project/other/evolve.yaml"),
            "--suite": hides("--suite support", "suite: second", "--agent other"),
            "--improver": shows("--improver ollama:special", "ollama:special", "--agent other"),
        },
    ),
    "evolve status": Scene(place="evolving", options={"--json": JSON}),
    "evolve pause": Scene(
        place="evolving",
        options={
            "--off": shows("--off", "allowed"),
            "--reason": shows("--reason special", "special"),
        },
    ),
    "evolve run": Scene(
        place="evolving",
        base="--dry-run",
        options={
            "--json": JSON,
            "--agent": _AGENT,
            "--calls": shows("--calls 77", "77"),
        },
    ),
}
