"""The hooks before a commit: programs of the lock, content with a clean tree; each refuses its dirt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from release.tree import BIN, ROOT, repository, run, succeed

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = ROOT / ".pre-commit-config.yaml"
PROGRAM = BIN / "pre-commit"
#: Read everything, and take the longest.
WHOLE = ("mypy", "generated")

pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]


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


CHECKED = "exporter/vllm_specdec_exporter/new.py"


#: Hook, file, its text, what is said of it.
DIRT = (
    ("ruff", CHECKED, '"""New."""\n\nimport os\n', ""),
    ("ruff", CHECKED, '"""New."""\n\nprint(undefined)\n', "F821"),
    ("ruff-format", CHECKED, '"""New."""\n\nONE = {\'a\' : 1}\n', "reformatted"),
    ("generated", "docs/reference/metrics.md", "Not generated.\n", "not current"),
    ("end-of-file", "docs/new.md", "One.", "Fixing"),
    ("trailing-whitespace", "docs/new.md", "One. \n", "Fixing"),
    ("merge-conflict", "docs/new.md", "<<<<<<< HEAD\nOne.\n=======\n", "conflict"),
    ("private-key", "docs/new.md", "-----BEGIN RSA " + "PRIVATE KEY-----\n", "Private key"),
    ("large-file", "docs/new.md", "One.\n" * 250_000, "exceeds"),
)


def test_dirt_is_refused(checkout: Path) -> None:
    """By the hook that is for it; each hook is tried."""
    for hook, name, text, said in DIRT:
        path = checkout / name
        before = path.read_bytes() if path.exists() else None
        path.write_text(text, encoding="utf-8")
        succeed(["git", "add", name], checkout)
        done = run([PROGRAM, "run", hook, "--files", name], checkout, PYTHONPATH=str(checkout / "exporter"))
        assert done.returncode != 0, hook
        assert "Failed" in done.stdout, done.stdout + done.stderr
        assert said in done.stdout
        path.unlink() if before is None else path.write_bytes(before)
        succeed(["git", "add", "--all"], checkout)
    # Types take too long to be tried.
    assert {hook for hook, *_ in DIRT} == hooks().keys() - {"mypy"}
