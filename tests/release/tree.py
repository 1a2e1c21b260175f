"""Copies of the repository: what an sdist holds, unpacked."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

_SECONDS = 1800.0


def environment(root: Path, **more: str) -> dict[str, str]:
    """Return an environment in which the package is that of a tree, and no other."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "GIT_", "MAKE"))
    }
    kept.pop("SOURCE_DATE_EPOCH", None)
    return {
        **kept,
        "PYTHONPATH": str(root / "exporter"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # A target of the Makefile may use the environment of the tests, and never make
        # it anew.
        "MAKEFLAGS": "--assume-old=.venv/.installed",
        **more,
    }


def run(
    command: Sequence[str | Path], root: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a tree, with further variables; return what it did."""
    return subprocess.run(
        command,
        cwd=root,
        env=environment(root, **more),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def succeed(command: Sequence[str | Path], root: Path, **more: str) -> str:
    """Run a command in a tree that has to succeed; return what it printed."""
    done = run(command, root, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(root: Path, into: Path, **more: str) -> None:
    """Build sdist and wheel of a tree."""
    succeed([sys.executable, "-m", "hatchling", "build", "-d", into], root, **more)


def extract(packed: Path, folder: Path) -> None:
    """Unpack an archive of ours; Debian 12's Python knows no filter yet."""
    with tarfile.open(packed) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist; return its only folder."""
    extract(sdist, folder)
    (root,) = folder.iterdir()
    return root


def repository(built: Path, folder: Path) -> Path:
    """Return a copy of the repository below a folder, from the sdist in another."""
    (sdist,) = built.glob("*.tar.gz")
    root = unpack(sdist, folder)
    # What an sdist adds. The backend would take the version from there.
    (root / "PKG-INFO").unlink()
    return root


def python(*arguments: str | Path) -> list[str | Path]:
    """Return a command of the Python of the tests."""
    return [sys.executable, *arguments]
