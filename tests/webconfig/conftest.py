"""Certificates for the tests of this folder."""

from pathlib import Path

import pytest

from webconfig.pki import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)
