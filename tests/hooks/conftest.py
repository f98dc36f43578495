from pathlib import Path

import pytest
from tests.hooks.hook_project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path)
