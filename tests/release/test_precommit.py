"""The hooks before a commit: a clean tree passes them."""

from pathlib import Path

import pytest

from release.tree import BIN, repository, succeed

#: Read everything, and take the longest.
WHOLE = ("mypy", "generated")

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


def test_a_clean_tree_passes(built: Path, tmp_path: Path) -> None:
    """With nothing to fix. What `make lint` and `make check-generated` run as well is left to them."""
    root = repository(built, tmp_path / "tree")
    (root / ".venv").symlink_to(BIN.parent)
    succeed(["git", "init", "--quiet"], root)
    succeed(["git", "add", "--all"], root)
    run = (BIN / "pre-commit", "run", "--all-files", "--show-diff-on-failure")
    succeed(run, root, SKIP=",".join(WHOLE))
