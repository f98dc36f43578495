"""Every option of every command has an effect: the command is run with and without it, and the
difference is found in its output, its status, files, the store or the model's requests. A new
option needs a scene, or the build fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.scenes.parser_options import parser_options
from tests.cli.scenes.place import Place
from tests.cli.scenes.places import OpenPlace
from tests.cli.scenes.scene import play
from tests.cli.scenes.table import PROVEN_ELSEWHERE, SCENES
from tests.cli.scenes.unproven import UNPROVEN


def proven() -> Iterator[tuple[str, str]]:
    for command, scene in SCENES.items():
        for option in scene.options:
            yield command.partition(" #")[0], "--json" if option == "--json" else option


def test_every_option_of_the_parser_has_a_scene():
    options = parser_options()
    named = {*proven(), *PROVEN_ELSEWHERE}
    assert named - options == set(), "there is no such option"
    assert UNPROVEN - options == set(), "there is no such option"
    assert options - named - UNPROVEN == set(), "a scene is missing: see tests/cli/scenes/table.py"
    assert UNPROVEN & named == set(), "it has a scene now: remove it from unproven.py"


@pytest.mark.parametrize(("command", "option"), PROVEN_ELSEWHERE)
def test_other_tests_use_the_option(command: str, option: str):
    file, _, name = PROVEN_ELSEWHERE[command, option].partition("::")
    text = (Path(__file__).parents[2] / file).read_text()
    _, _, body = text.partition(f"def {name}(")
    assert option in body.partition("\ndef ")[0]


QUICK = ("init", "keys create", "log show", "mcp add", "memory add", "policy check", "sessions ls")
"""Scenes of each pull request's first run; the others are slow."""


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SCENES],
)
def test_the_options_have_an_effect(command: str, open_place: OpenPlace):
    scene = SCENES[command]
    place: Place = open_place(scene.place)
    play(place, command.partition(" #")[0], scene)
