"""One exporter before one server, for all tests of a file that leave both as they found
them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.rig import Rig, Surroundings, rigged


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with rigged("--window", "30s") as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """An exporter and its server, both well; afterwards the exporter still is, and has
    met no defect.
    """
    shared.mend()
    yield shared
    shared.mend()
    assert "Traceback" not in shared.exporter.log()


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    folder = tmp_path / "surroundings"
    folder.mkdir()
    return Surroundings(folder)
