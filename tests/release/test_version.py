"""The version comes from one place."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from release.tree import ROOT, python, repository, run, succeed
from vllm_specdec_exporter import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEXT = "7.31.4"
#: Which say what was, and not what is; and packages of others.
_NOT_OURS = re.compile(r"^(CHANGELOG\.md|requirements/|tests/)|(^|/)package-lock\.json$")
_GENERATORS = ("docs/generate.py", "alerts/generate.py", "dashboards/generate.py", "helm/generate.py")


def bump(root: Path, version: str, last: str = __version__) -> None:
    """Change the version where it is written by hand."""
    path = root / "exporter" / "vllm_specdec_exporter" / "__init__.py"
    text = path.read_text("utf-8")
    assert text.count(f'"{last}"') == 1
    path.write_text(text.replace(f'"{last}"', f'"{version}"'), encoding="utf-8")


def saying(root: Path, version: str) -> set[str]:
    """Return the files of a tree in which a version stands, as a whole word."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.]*\d)")
    return {name for name, text in _texts(root) if pattern.search(text)}


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _NOT_OURS.search(name):
            yield name, path.read_bytes().decode("utf-8", errors="replace")


@pytest.fixture(scope="module")
def bumped(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of the next version, after `make generate`."""
    root = repository(built, tmp_path_factory.mktemp("bumped"))
    bump(root, NEXT)
    succeed(python("release/version.py"), root)
    for generator in _GENERATORS:
        succeed(python(generator), root)
    return root


def test_everything_says_this_version() -> None:
    """Every file that has to, as it is committed."""
    succeed(python("release/version.py", "--check"), ROOT)


@pytest.mark.full
def test_everything_says_the_next_one(bumped: Path, built: Path, tmp_path: Path) -> None:
    """Every file that said the version before, after one line was changed and the generators ran."""
    before = saying(repository(built, tmp_path), __version__)
    assert len(before) > 20
    assert saying(bumped, NEXT) == before
    assert saying(bumped, __version__) == set()


@pytest.mark.full
def test_a_version_that_was_forgotten_is_found(tree: Path) -> None:
    """Each file by name, with the remedy; and nothing is written."""
    bump(tree, NEXT)
    done = run(python("release/version.py", "--check"), tree)
    assert done.returncode == 1
    for name in ("docker-compose.yml", "docs/machine.md", "helm/vllm-specdec-exporter/Chart.yaml"):
        assert name in done.stderr
        assert __version__ in (tree / name).read_text("utf-8")
    assert "make generate" in done.stderr


@pytest.mark.full
def test_only_plain_versions_are_released(tree: Path) -> None:
    """Python, Helm and registries agree on three numbers, and on little else."""
    last = __version__
    for version in ("1.2", "1.2.3rc1", "1.2.3.dev0", "v1.2.3"):
        bump(tree, version, last)
        last = version
        done = run(python("release/version.py"), tree)
        assert done.returncode == 1
        assert json.dumps(version).strip('"') in done.stderr


@pytest.mark.full
def test_a_place_that_no_file_has_is_an_error(tree: Path) -> None:
    """Otherwise a file that is written in another way would be forgotten."""
    path = tree / "helm" / "vllm-specdec-exporter" / "templates" / "_names.tpl"
    path.write_text(path.read_text("utf-8").replace(__version__, "{{ .Chart.AppVersion }}"), encoding="utf-8")
    done = run(python("release/version.py", "--check"), tree)
    assert done.returncode == 1
    assert "no file says" in done.stderr
    assert "vllm-specdec-exporter" in done.stderr
