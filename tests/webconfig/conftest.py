"""Certificates for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webconfig.pki import Pki

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)
