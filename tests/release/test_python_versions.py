"""Which versions of Python can install the locked packages."""

import re
import subprocess
import sys
import tomllib

import pytest

from support.repository import ROOT, text_of

pytestmark = pytest.mark.full

#: The platform of the image and of most servers.
PLATFORM = "manylinux_2_28_x86_64"


def _bounds() -> tuple[int, int]:
    """The oldest minor version of Python 3, and the newest."""
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    match = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"])
    assert match
    return int(match[1]), int(match[2]) - 1


@pytest.mark.parametrize("minor", _bounds())
def test_both_ends_of_the_range_have_a_wheel_of_each_locked_package(minor: int) -> None:
    """The installation with pip takes wheels only."""
    options = (
        f"--dry-run --ignore-installed --target unused --python-version 3.{minor} "
        f"--platform {PLATFORM} --only-binary :all: --require-hashes --no-deps -q"
    )
    command = (sys.executable, "-m", "pip", "install", *options.split())
    done = subprocess.run(
        (*command, "-r", "requirements/runtime.txt"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if "NewConnectionError" in done.stderr:
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr


def test_the_pages_name_the_range() -> None:
    """Where somebody chooses an interpreter."""
    oldest, newest = _bounds()
    for page in ("README.md", "docs/deployment.md"):
        assert f"Python 3.{oldest} to 3.{newest}" in text_of(page), page
