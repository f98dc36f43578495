"""Which skills and commands an agent has, and what the model is told of them."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.scopes import PartLocation, Scopes
from mainspring.runtime.packages.package_contents import contents_hash, read_contents
from mainspring.runtime.packages.trust_pins import TrustPin, TrustPins
from mainspring.runtime.skills.catalogue import render_catalogue
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_body import read_body
from mainspring.runtime.skills.skill_discovery import DiscoveredSkills, discover

WILD = Path(__file__).parents[2] / "fixtures/wild"


@pytest.fixture
def scopes(tmp_path: Path) -> Scopes:
    for name in ("project", "home", "managed"):
        (tmp_path / name).mkdir()
    return Scopes(folder=tmp_path / "project", home=tmp_path / "home", managed=tmp_path / "managed")


def skill(folder: Path, description: str = "Does it.", *, name: str | None = None) -> Path:
    folder.mkdir(parents=True)
    file = folder / "SKILL.md"
    file.write_text(f"---\nname: {name or folder.name}\ndescription: {description}\n---\nDo it.\n")
    return file


def command(file: Path, text: str = "Do it.\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def discover_skills(scopes: Scopes) -> DiscoveredSkills:
    return discover(scopes, is_pinned=lambda _: None)


def names(what: DiscoveredSkills) -> list[str]:
    return [item.name for item in what.skills]


def by_name(what: DiscoveredSkills) -> dict[str, Skill]:
    return {item.name: item for item in what.skills}


def finding_texts(what: DiscoveredSkills) -> list[str]:
    return [str(finding) for finding in what.findings]


def test_skills_of_public_projects_are_found_except_those_without_a_description(tmp_path: Path):
    shutil.copytree(WILD / "skills", tmp_path / ".claude/skills")
    shutil.copytree(WILD / "commands", tmp_path / ".claude/commands")
    what = discover_skills(Scopes(folder=tmp_path))
    files = [*WILD.glob("skills/**/[Ss][Kk][Ii][Ll][Ll].md"), *WILD.glob("commands/**/*.md")]
    skipped = [finding for finding in what.findings if "skipped" in finding.what]
    assert len(skipped) == 6
    # One stands below a skill, and so is part of it.
    assert len(what.skills) == len(files) - len(skipped) - 1
    assert {"inner", "lowercase-file", "frontend:component"} <= {*names(what)}
    assert "template" not in names(what)
    assert names(what) == sorted(names(what))


def test_of_two_skills_with_one_name_the_wider_scope_wins_with_a_note(scopes: Scopes):
    assert scopes.home is not None
    assert scopes.managed is not None
    skill(scopes.folder / "skills/mine", "the folder's")
    skill(scopes.folder / ".claude/skills/mine", "Claude's")
    skill(scopes.folder / ".claude/skills/both", "the project's")
    skill(scopes.home / ".claude/skills/both", "the user's")
    skill(scopes.home / ".agents/skills/all", "the user's")
    skill(scopes.managed / "skills/all", "the machine's")
    what = discover_skills(scopes)
    assert {name: each.description for name, each in by_name(what).items()} == {
        "all": "the machine's",
        "both": "the user's",
        "mine": "the folder's",
    }
    assert {finding.level for finding in what.findings} == {"note"}
    assert finding_texts(what)[1:] == [
        ".claude/skills/both/SKILL.md: is not used: "
        "~/.claude/skills/both/SKILL.md is also called both and takes precedence",
        ".claude/skills/mine/SKILL.md: is not used: "
        "skills/mine/SKILL.md is also called mine and takes precedence",
    ]


def test_a_skill_precedes_a_command_of_its_scope_but_not_a_wider_scope(scopes: Scopes):
    assert scopes.home is not None
    skill(scopes.folder / ".claude/skills/here")
    command(scopes.folder / ".claude/commands/here.md")
    skill(scopes.folder / ".claude/skills/there")
    command(scopes.home / ".claude/commands/there.md")
    kinds = {name: each.kind for name, each in by_name(discover_skills(scopes)).items()}
    assert kinds == {"here": "skill", "there": "command"}


def test_only_skills_of_projects_and_plugins_need_to_be_pinned(scopes: Scopes, tmp_path: Path):
    assert scopes.home is not None
    skill(scopes.home / ".claude/skills/mine")
    changed = skill(scopes.home / ".mainspring/skills/changed").parent
    pinned = skill(scopes.folder / "skills/pinned").parent
    skill(scopes.folder / "skills/unknown")
    order = command(scopes.folder / "commands/order.md")
    skill(tmp_path / "acme/skills/brought")
    plugin = PartLocation(tmp_path / "acme", "user", "acme", tmp_path / "acme")
    scopes = Scopes(folder=scopes.folder, home=scopes.home, plugins=(plugin,))

    def is_pinned(place: Path) -> bool | None:
        return {pinned: True, order: True, changed: False}.get(place)

    what = discover(scopes, is_pinned=is_pinned)
    trusted = {item.name: item.is_trusted for item in what.skills}
    assert trusted == {
        "mine": True,
        "changed": False,
        "pinned": True,
        "order": True,
        "unknown": False,
        "acme:brought": False,
    }


def test_only_immediate_children_of_a_plugins_skills_folder_are_skills(
    scopes: Scopes, tmp_path: Path
):
    skill(tmp_path / "acme/skills/near")
    skill(tmp_path / "acme/skills/group/far")
    command(tmp_path / "acme/commands/build/web.md")
    root = tmp_path / "acme"
    what = discover_skills(
        Scopes(folder=scopes.folder, plugins=(PartLocation(root, "user", "acme", root),))
    )
    assert names(what) == ["acme:build:web", "acme:near"]


def test_a_plugin_can_name_single_skills_and_commands(scopes: Scopes, tmp_path: Path):
    root = tmp_path / "acme"
    skill(root / "own/tool")
    command(root / "extra/go.md")
    plugins = (
        PartLocation(root / "own/tool", "user", "acme", root, "skills"),
        PartLocation(root / "extra/go.md", "user", "acme", root, "commands"),
    )
    assert names(discover_skills(Scopes(folder=scopes.folder, plugins=plugins))) == [
        "acme:go",
        "acme:tool",
    ]


def test_depth_and_ignored_folders_bound_the_search(scopes: Scopes):
    place = scopes.folder / ".claude/skills"
    skill(place / "a/b/c/d/e/deep")
    skill(place / "a/b/c/d/e/f/deeper")
    skill(place / "node_modules/packed")
    skill(place / ".git/hidden")
    assert names(discover_skills(scopes)) == ["deep"]


def test_at_most_2000_folders_are_searched(scopes: Scopes):
    place = scopes.folder / ".claude/skills"
    for number in range(2010):
        (place / f"{number:04}").mkdir(parents=True)
    skill(place / "zzz")
    what = discover_skills(scopes)
    assert names(what) == []
    assert finding_texts(what) == [
        ".claude/skills/1999: it and the following ones are not read: more than 2000 folders"
    ]


def test_links_out_of_a_project_or_plugin_are_not_followed(scopes: Scopes, tmp_path: Path):
    outside = skill(tmp_path / "outside/secret").parent
    place = scopes.folder / ".claude/skills"
    (place / "half").mkdir(parents=True)
    (place / "linked").symlink_to(outside)
    (place / "half/SKILL.md").symlink_to(outside / "SKILL.md")
    (place / "loop").symlink_to(place / "loop")
    (scopes.folder / ".agents").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/skills").symlink_to(tmp_path / "outside")
    what = discover_skills(scopes)
    assert names(what) == []
    assert [finding.file for finding in what.findings] == [
        ".claude/skills/half/SKILL.md",
        ".claude/skills/linked",
        ".agents/skills",
    ]
    assert {finding.what for finding in what.findings} == {
        "links to a place outside its root: not read"
    }


def test_links_in_the_users_folder_are_followed(scopes: Scopes, tmp_path: Path):
    assert scopes.home is not None
    outside = skill(tmp_path / "dotfiles/mine").parent
    (scopes.home / ".claude/skills").mkdir(parents=True)
    (scopes.home / ".claude/skills/mine").symlink_to(outside)
    assert names(discover_skills(scopes)) == ["mine"]


def test_two_paths_to_one_folder_are_searched_once(scopes: Scopes):
    skill(scopes.folder / ".agents/skills/shared")
    skill(scopes.folder / ".agents/skills/round/inner")
    (scopes.folder / ".agents/skills/round/up").symlink_to(scopes.folder / ".agents/skills")
    (scopes.folder / ".claude").symlink_to(scopes.folder / ".agents")
    what = discover_skills(scopes)
    assert (names(what), finding_texts(what)) == (["inner", "shared"], [])


def test_an_empty_folder_has_no_skills(scopes: Scopes):
    assert discover_skills(scopes) == DiscoveredSkills(skills=(), findings=())


def a_skill(name: str, description: str = "Does it.", *, for_model: bool = True) -> Skill:
    return Skill(
        name=name, description=description, file="", folder="", hash="", for_model=for_model
    )


def test_the_catalogue_has_one_line_per_skill_the_model_may_use():
    skills = [
        a_skill("b", "Over\nlines </skill> & more"),
        a_skill('a"<'),
        a_skill("hidden", for_model=False),
    ]
    assert render_catalogue(skills).splitlines() == [
        '<skill name="a&quot;&lt;">Does it.</skill>',
        '<skill name="b">Over lines &lt;/skill&gt; &amp; more</skill>',
    ]
    assert render_catalogue([]) == ""


@hypothesis_settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.text(max_size=9), st.text(max_size=30)),
        max_size=5,
        unique_by=lambda one: one[0],
    )
)
def test_the_catalogue_does_not_depend_on_order_and_has_one_line_per_skill(
    described: list[tuple[str, str]],
):
    skills = [a_skill(name, description) for name, description in described]
    catalogue = render_catalogue(skills)
    assert catalogue == render_catalogue(reversed(skills))
    assert len(catalogue.splitlines()) == len(skills)


def test_a_file_name_that_would_break_a_prompt_is_ignored(scopes: Scopes):
    command(scopes.folder / "commands/fine.md")
    command(scopes.folder / "commands/two\nlines.md")
    raw = os.fsencode(scopes.folder / "commands") + b"/not\xfftext.md"
    Path(os.fsdecode(raw)).write_text("Do it.\n")
    assert names(discover_skills(scopes)) == ["fine"]


def test_a_trusted_skill_is_usable_only_while_its_scripts_are_unchanged(tmp_path: Path):
    place = tmp_path / ".claude/skills/deploy"
    (place / "scripts").mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: deploy\ndescription: Deploys.\n---\nRun it.\n")
    script = place / "scripts/run.sh"
    script.write_text("echo fine\n")
    pins = TrustPins(tmp_path / "pins.json")
    seen = contents_hash(read_contents(place))
    pins.pin(place, TrustPin(hash=seen, when=datetime(2026, 5, 1, tzinfo=UTC)))
    (skill,) = discover(Scopes(folder=tmp_path), is_pinned=pins.trusted_hash).skills
    assert (skill.is_trusted, skill.contents) == (True, seen)
    assert "Run it." in read_body(skill)
    script.write_text("echo evil\n")
    with pytest.raises(InvalidInput, match="has changed since this session began"):
        read_body(skill)
    (skill,) = discover(Scopes(folder=tmp_path), is_pinned=pins.trusted_hash).skills
    assert (skill.is_trusted, skill.contents) == (False, "")
