from collections.abc import Generator

import pytest
from tests.cli.scenes.place import Place
from tests.cli.scenes.places import PLACES, OpenPlace
from tests.cli.upstream import serving


@pytest.fixture(scope="session")
def open_place(tmp_path_factory: pytest.TempPathFactory) -> Generator[OpenPlace]:
    """Places are made once, and restored for every command."""
    places: dict[str, Place] = {}
    with serving() as upstream:

        def open_place(name: str) -> Place:
            if name not in places:
                place = Place(tmp_path_factory.mktemp(name) / "at", upstream)
                PLACES[name](place)
                place.save()
                places[name] = place
            return places[name]

        yield open_place
