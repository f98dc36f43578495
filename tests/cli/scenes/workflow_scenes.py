"""Options of commands about workflows."""

from tests.cli.scenes.scene import JSON, Change, Scene, Scenes, hides, shows

_WORKFLOW: dict[str, Change] = {
    "--agent": shows("--agent other", "You are a cook."),
    "--model": shows("--model ollama:special", '"model": "special"'),
    "--mode": shows("--mode plan", "plan"),
}
_LIMITS: dict[str, Change] = {
    "--max-cost": shows("--max-cost 0.000001", "budget_reached"),
    "--max-steps": shows("--max-steps 1", "its limit"),
    "--parallel": shows("--parallel 1", "I was alone."),
}
_UNCONFINED: dict[str, Change] = {
    "--dangerously-run-unsandboxed": hides("--dangerously-run-unsandboxed", "no sandbox works")
}
SCENES: Scenes = {
    "workflow ls": Scene(
        place="gates", options={"--json": JSON, "--runs": shows("--runs", "$run")}
    ),
    "workflow new": Scene(place="workflows", base="other", options={"--json": JSON}),
    "workflow validate": Scene(place="workflows", options={"--json": JSON}),
    "workflow graph": Scene(
        place="workflows",
        base="steps",
        options={"--format": shows("--format mermaid", "flowchart")},
    ),
    "workflow trust": Scene(place="workflows", base="steps", options={"--json": JSON}),
    "workflow show": Scene(place="gates", base="$run", options={"--json": JSON}),
    "workflow fork": Scene(
        place="gates",
        base="$run",
        options={"--json": JSON, "--at": shows("--at none", "exit 1")},
    ),
    "workflow run": Scene(
        place="workflows",
        base="steps words",
        options={
            "--json": JSON,
            **_WORKFLOW,
            "--input": shows("--input size=special", "special"),
            "--inputs": shows("--inputs inputs.json", "from-file"),
            "--key": shows("--key special", '"run_key":"special"'),
            "--base": shows("--base special", '"base_branch":"special"'),
            "--dry-run": shows("--dry-run", "for the first requests of its agents"),
            "--recorded": shows("--recorded test.yaml", "special", "steps words --dry-run"),
        },
    ),
    "workflow run #limits": Scene(place="pair", base="pair", options=_LIMITS),
    "workflow run #gates": Scene(
        place="gates",
        base="steps other",
        options={"--at-most": shows("--at-most 1", "1 runs of steps have not ended")},
    ),
    "workflow run #unconfined": Scene(place="unconfined", base="pair", options=_UNCONFINED),
    "workflow resume": Scene(
        place="pair", base="$run", options={"--json": JSON, **_WORKFLOW, **_LIMITS}
    ),
    "workflow resume #unconfined": Scene(place="unconfined", base="$run", options=_UNCONFINED),
    "workflow retry": Scene(
        place="pair", base="$run base", options={"--json": JSON, **_WORKFLOW, **_LIMITS}
    ),
    "workflow retry #unconfined": Scene(place="unconfined", base="$run base", options=_UNCONFINED),
    "workflow skip": Scene(
        place="pair", base="$run base", options={"--json": JSON, **_WORKFLOW, **_LIMITS}
    ),
    "workflow skip #unconfined": Scene(place="unconfined", base="$run base", options=_UNCONFINED),
    "workflow test": Scene(
        place="gates",
        options={"--json": JSON, "--record": shows("--record $run", "workflow: steps")},
    ),
}
