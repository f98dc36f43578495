"""What the operator's settings say about hooks, skills and subagents."""

import json
from pathlib import Path

from mainspring.core.hook import HookFolder
from mainspring.runtime.agent import Agent
from mainspring.runtime.definition_files.scopes import PartLocation, Scopes
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.settings.agent_selection import without_own_parts
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS, Subagent
from mainspring.wiring.settings_files import load_policy


def preferences(folder: Path, **said: object) -> Preferences:
    (folder / "home").mkdir(exist_ok=True)
    managed = folder / "managed.json"
    managed.write_text(json.dumps(said))
    return load_policy(folder, home=folder / "home", managed=managed).preferences


def permitted_hooks(said: Preferences) -> list[str]:
    plugin = HookFolder(name="guard", root="/x", plugin="guard")
    other = HookFolder(name="other", root="/y", plugin="other")
    skill = HookFolder(name="guard:look", root="/z", kind="skill")
    sources = {
        "managed": ("managed", None),
        "user": ("user", None),
        "project": ("project", None),
        "plugin": ("user", plugin.plugin),
        "other plugin": ("user", other.plugin),
        "skill with a colon": ("user", skill.plugin),
    }
    return [name for name, source in sources.items() if said.permits_hooks(*source)]


def test_the_operator_decides_whose_hooks_run(tmp_path: Path):
    enabled = {"guard@market": True}
    only = preferences(tmp_path, allowManagedHooksOnly=True, enabledPlugins=enabled)
    assert permitted_hooks(only) == ["managed", "plugin"]
    strict = preferences(tmp_path, strictPluginOnlyCustomization=["hooks"])
    assert permitted_hooks(strict) == ["managed", "plugin", "other plugin"]
    assert permitted_hooks(preferences(tmp_path, disableAllHooks=True)) == ["managed"]
    (tmp_path / ".claude").mkdir()
    own = {"allowManagedHooksOnly": True, "strictPluginOnlyCustomization": True}
    (tmp_path / "home/.claude").mkdir()
    (tmp_path / "home/.claude/settings.json").write_text(json.dumps(own))
    assert len(permitted_hooks(preferences(tmp_path))) == 6  # only the operator can say so


def test_the_operator_can_limit_skills_and_subagents_to_plugins(tmp_path: Path):
    root = tmp_path / "plugins/guard"
    scopes = Scopes(folder=tmp_path, plugins=(PartLocation(root, "user", "guard", root),))

    def skill(name: str, file: Path) -> Skill:
        return Skill(name=name, description="", file=str(file), folder=str(file.parent), hash="")

    agent = Agent(
        skills=[
            skill("guard:a", root / "skills/a/SKILL.md"),
            skill("guard:b", tmp_path / "skills/b/SKILL.md"),
        ],
        subagents=[
            *BUILT_IN_SUBAGENTS[:1],
            Subagent(
                name="x:y", description="", prompt="", scope="project", file=str(tmp_path / "x.md")
            ),
        ],
    )
    every_kind = preferences(tmp_path, strictPluginOnlyCustomization=True).plugins_only
    left = without_own_parts(agent, scopes, every_kind)
    assert [item.name for item in left.skills] == ["guard:a"]
    assert [subagent.name for subagent in left.subagents] == [BUILT_IN_SUBAGENTS[0].name]
    some = preferences(tmp_path, strictPluginOnlyCustomization=["skills"]).plugins_only
    assert len(without_own_parts(agent, scopes, some).subagents) == 2
