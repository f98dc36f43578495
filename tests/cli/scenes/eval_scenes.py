"""Options of commands about evals and dreams."""

from tests.cli.scenes.scene import JSON, Change, Scene, Scenes, hides, refuses, shows

_AGENT = shows("--agent other", "exit 1")
_NOWHERE = shows("--agent nowhere", "nowhere")
_SPECIAL = shows("--model ollama:special", '"model": "special"')
_REPORTS: dict[str, Change] = {
    "--junit": shows("--junit out.xml", "<testsuite"),
    "--markdown": shows("--markdown out.md", "file project/out.md"),
    "--html": shows("--html out.html", "<html"),
    "--inspect": shows("--inspect out.json", "file project/out.json"),
}
SCENES: Scenes = {
    "eval ls": Scene(
        place="evals", options={"--json": JSON, "--agent": hides("--agent other", "basics")}
    ),
    "eval init": Scene(
        place="evals", options={"--agent": shows("--agent other", "file project/other/evals/")}
    ),
    "eval add": Scene(
        place="evals",
        base="$session",
        options={
            "--suite": shows("--suite special", "file project/evals/special.yaml"),
            "--id": shows("--id special", "special"),
            "--agent": shows("--agent other", "file project/other/evals/"),
        },
    ),
    "eval health": Scene(
        place="evals", options={"--json": JSON, "--agent": hides("--agent other", "basics")}
    ),
    "eval reward check": Scene(
        place="evals", options={"--agent": shows("--agent other", "exit 1")}
    ),
    "eval trend": Scene(
        place="evals", options={"--json": JSON, "--agent": hides("--agent other", "basics")}
    ),
    "eval report": Scene(place="evals", base="last", options={"--json": JSON, **_REPORTS}),
    "eval compare": Scene(place="evals", base="$run $run", options={"--json": JSON, **_REPORTS}),
    "eval label": Scene(
        place="evals",
        base="last --case one --pass",
        options={
            "--case": hides("--case one", "2 labels", "last --pass"),
            "--pass": shows("--pass", "exit 0", "last --case one"),
            "--fail": shows("--fail", "exit 0", "last --case one"),
            "--agent": _AGENT,
        },
    ),
    "eval export": Scene(
        place="evals",
        base="basics --to promptfoo -o out",
        options={
            "--to": hides("--to promptfoo", "Missing option", "basics -o out"),
            "--output": shows("--output special", "file project/special", "basics --to promptfoo"),
            "--agent": _AGENT,
        },
    ),
    "eval import": Scene(
        place="evals",
        base="exported.yaml",
        options={
            "--name": shows("--name special", "file project/evals/special.yaml"),
            "--agent": shows("--agent other", "file project/other/evals/"),
        },
    ),
    "eval benchmark": Scene(
        place="evals",
        base="$run -o bench.json",
        options={
            "--json": JSON,
            "--output": shows("--output special.json", "file project/special.json", "$run"),
            "--skill": shows("--skill special", "special"),
        },
    ),
    "eval calibrate": Scene(
        place="judged",
        base="judged",
        options={"--json": JSON, "--agent": _NOWHERE, "--model": _SPECIAL},
    ),
    "eval grade": Scene(
        place="judged",
        base="--now",
        options={"--json": JSON, "--agent": _NOWHERE, "--model": _SPECIAL},
    ),
    "eval reward check #found": Scene(place="parallel", base="judged", options={"--json": JSON}),
    "eval run #judged": Scene(
        place="judged",
        base="judged --fresh",
        options={
            "--budget": shows("--budget 0.000001", "the budget was reached"),
            "--offline": hides("--offline all", '"messages"', "sessions --fresh"),
        },
    ),
    "eval run #parallel": Scene(
        place="parallel",
        base="judged --fresh",
        options={
            "--parallel": shows("--parallel 1", "I was alone."),
        },
    ),
    "eval run": Scene(
        place="evals",
        base="basics -m scripted:model.yaml --fresh",
        options={
            "--json": JSON,
            "--agent": shows("--agent other", "there are no suites", ""),
            "--case": hides("--case one", "two"),
            "--tag": hides("--tag first", "two"),
            "--tier": hides("--tier fast", "two"),
            "--failed": hides("--failed", "1 of 2", "basics -m scripted:model.yaml"),
            "--trials": shows("--trials 2", "4 trials"),
            "--model": hides("--model scripted:other.yaml", "1 of 2", "basics --fresh"),
            "--topology": shows("--topology single,vote", "vote"),
            "--fresh": hides("--fresh", "unchanged", "basics -m scripted:model.yaml"),
            "--keep": shows("--keep", "/one-1-"),
            "--gate": shows("--gate", "gate"),
            "--save-baseline": shows("--save-baseline", "file project/evals/baselines/basics"),
            **_REPORTS,
        },
    ),
    "models drill": Scene(
        place="evals",
        base="ollama:one,ollama:two",
        options={
            "--json": JSON,
            "--suite": shows("--suite basics", "basics"),
            "--budget": refuses("--budget 1", "--budget needs --suite"),
        },
    ),
    "dream run": Scene(
        place="dreams",
        options={
            "--json": JSON,
            "--session": hides("--session $second", "French"),
            "--model": shows("--model ollama:special", '"model": "special"'),
            "--instructions": shows("--instructions special", "special", "--model ollama:test"),
            "--apply": shows("--apply", "file project/memory"),
            "--if-due": shows("--if-due", "nothing to do"),
        },
    ),
    "dream ls": Scene(
        place="dreamt", options={"--json": JSON, "--scope": hides("--scope user", "proposed")}
    ),
    "dream show": Scene(place="dreamt", base="$dream", options={"--json": JSON}),
    "dream resume": Scene(place="dreamt", base="$dream", options={"--json": JSON}),
    "dream run #user": Scene(
        place="dreams",
        base="--apply",
        options={"--scope": shows("--scope user", "file home/.mainspring/memory")},
    ),
    "dream run #suite": Scene(
        place="dreams_tested",
        base="--suite basics",
        options={
            "--suite": shows("--suite basics", "say hello", ""),
            "--budget": shows("--budget 0.000001", "budget"),
            "--no-sandbox": hides("--no-sandbox", "no sandbox works"),
        },
    ),
    "dream apply": Scene(
        place="dreamt",
        base="$dream --yes",
        options={"--json": JSON, "--yes": shows("--yes", "exit 0", "$dream")},
    ),
    "dream rollback": Scene(
        place="dream_applied",
        base="$dream",
        options={"--json": JSON, "--reason": shows("--reason special", "special")},
    ),
}
