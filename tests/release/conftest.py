"""A copy of the tree for each file of tests."""

from pathlib import Path

import pytest

from release.tree import build, repository
from support.repository import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel of the repository as it is; only to be
    read.
    """
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, folder)
    return folder


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    """A copy of the repository that a test may change."""
    return repository(built, tmp_path / "tree")
