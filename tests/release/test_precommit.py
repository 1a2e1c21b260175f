"""The hooks before a commit are programs of the lock file, and a clean tree passes them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.tree import BIN, ROOT, repository, succeed

CONFIG = ROOT / ".pre-commit-config.yaml"
PROGRAM = BIN / "pre-commit"
#: Read everything, and take the longest.
WHOLE = ("mypy", "generated")

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


def hooks() -> dict[str, dict[str, Any]]:
    """Return the hooks by their identifiers."""
    (source,) = yaml.safe_load(CONFIG.read_text("utf-8"))["repos"]
    assert source["repo"] == "local"
    return {hook["id"]: hook for hook in source["hooks"]}


@pytest.fixture(scope="module")
def checkout(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with everything in it, added and not committed."""
    folder = tmp_path_factory.mktemp("checkout")
    root = repository(built, folder / "tree")
    (root / ".venv").symlink_to(BIN.parent)
    succeed(["git", "init", "--quiet"], root)
    succeed(["git", "add", "--all"], root)
    return root


def test_every_hook_is_a_program_of_the_environment() -> None:
    """Or a target of the Makefile, so that the lock file says all versions."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for name, hook in hooks().items():
        program, *arguments = hook["entry"].split()
        assert hook["language"] == "system", name
        if program == "make":
            assert set(arguments) <= targets, name
        else:
            assert program.startswith(".venv/bin/"), name
            assert (BIN / program.rpartition("/")[2]).is_file(), name


def test_a_clean_tree_passes(checkout: Path) -> None:
    """With nothing to fix. What `make lint` and `make check-generated` run as well is left to them."""
    succeed([PROGRAM, "validate-config", CONFIG], ROOT)
    succeed([PROGRAM, "run", "--all-files", "--show-diff-on-failure"], checkout, SKIP=",".join(WHOLE))
