"""An agent that answers questions of customers: what it answers follows from its instructions, so
that a change of its texts really changes its sessions. Its improver is a script, too."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import yaml
from tests.environ import boundary

from mainspring.config import Settings, read_settings
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.tracks.evolve_settings import read_settings as read_evolve
from mainspring.wiring.evolution_assembly import CampaignOptions, open_campaigns

TOPICS = {
    "refund": ("14 days", "Refunds: say 14 days."),
    "shipping": ("3 days", "Shipping: say 3 days."),
    "warranty": ("2 years", "Warranty: say 2 years."),
}
"""The answer that customers need, by topic, and the rule that makes the agent give it."""
FIRST_RULE = TOPICS["refund"][1]
NAMES = ("lamp", "chair", "desk", "sofa", "shelf", "rug", "mirror", "clock", "vase", "stool")


def settings_of(folder: Path) -> Settings:
    return read_settings(environ=boundary(), folder=folder)


def opened(folder: Path) -> AbstractAsyncContextManager[FolderCampaigns]:
    options = CampaignOptions(
        folder=folder,
        settings=read_evolve(folder),
        suite=read_suite(folder / "evals/support.yaml"),
    )
    return open_campaigns(settings_of(folder), options)


def change(file: Path, **fields: object) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))


def write_support_agent(
    folder: Path, *, per_topic: int = 10, improver: list[dict[str, object]] | None = None
) -> Path:
    """Write the agent, its suite with half of the cases sealed, and `evolve.yaml`."""
    (folder / "evals").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("You answer customers.\n\n" + FIRST_RULE + "\n")
    (folder / "agent.yaml").write_text("model: scripted:model.yaml\n")
    _write(folder / "model.yaml", agent_parts())
    _write(folder / "improver.yaml", improver or improver_parts())
    _write(folder / "evals/support.yaml", {"cases": support_cases(per_topic)})
    settings = {"suite": "support", "improver": "scripted:improver.yaml", "calls": {"metric": 200}}
    _write(folder / "evolve.yaml", settings)
    return folder


def agent_parts() -> list[dict[str, object]]:
    parts: list[dict[str, object]] = [
        {"when": topic, "instructions": rule, "steps": [{"says": f"It is {answer}."}]}
        for topic, (answer, rule) in TOPICS.items()
    ]
    return [*parts, {"steps": [{"says": "I do not know."}]}]


def improver_parts() -> list[dict[str, object]]:
    """The first answer quotes a case, and is refused; the others are rules."""
    leak = "For the question do you know about the shipping of my lamp please answer well"
    quoting: dict[str, object] = {
        "when": "contains 3 days (attempt 1)",
        "steps": [{"says": f'<append path="AGENTS.md">\n{leak}\n</append>'}],
    }
    rules: list[dict[str, object]] = [
        {
            "when": f"Cause: message: contains {answer}",
            "steps": [{"says": f'<append path="AGENTS.md">\n{rule}\n</append>'}],
        }
        for answer, rule in TOPICS.values()
    ]
    return [quoting, *rules]


def support_cases(per_topic: int) -> list[dict[str, object]]:
    return [
        {
            "id": f"{topic}-{NAMES[number % len(NAMES)]}-{number}",
            "input": f"Do you know about the {topic} of my {NAMES[number % len(NAMES)]}, please?",
            "tags": [topic],
            "split": "holdout" if number % 2 else "val",
            "gold": answer,
            "graders": [{"type": "contains", "text": answer}],
        }
        for topic, (answer, _) in TOPICS.items()
        for number in range(per_topic)
    ]


def _write(file: Path, content: object) -> None:
    file.write_text(yaml.safe_dump(content, sort_keys=False))
