"""Build the page that draws dashboards: the packages of the lock file, then one bundle of them and `src`.

Does nothing where both are current::

    python tests/dashboards/render/bundle.py
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "page.html"
MODULES = HERE / "node_modules"
BUILD = HERE / "build"

#: No script of a package is run: nothing here needs one.
_INSTALL = ("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error")
_BUILD = ("npm", "run", "--silent", "build")


class BundleError(RuntimeError):
    """The page could not be built."""


def bundle() -> Path:
    """Build what is not current, once for all processes that ask at the same time; return the page.

    Raises:
        BundleError: npm is missing, or it failed; the message says how.
    """
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        modules = _digest([HERE / "package-lock.json", HERE / ".npmrc"])
        if _stamped(MODULES) != modules:
            (MODULES / ".stamp").unlink(missing_ok=True)
            _run(_INSTALL)
            (MODULES / ".stamp").write_text(modules)
        sources = _digest([HERE / "package.json", *sorted((HERE / "src").iterdir())]) + modules
        if _stamped(BUILD) != sources:
            _run(_BUILD)
            (BUILD / ".stamp").write_text(sources)
    return PAGE


def _stamped(folder: Path) -> str:
    stamp = folder / ".stamp"
    return stamp.read_text() if stamp.exists() else ""


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()


def _run(command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        msg = f"{command[0]} is missing: install the Debian packages nodejs and npm"
        raise BundleError(msg)
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    if done.returncode != 0:
        msg = f"{' '.join(command)}: {(done.stderr or done.stdout)[-3000:]}"
        raise BundleError(msg)


if __name__ == "__main__":
    try:
        print(bundle())
    except BundleError as error:
        sys.exit(f"error: {error}")
