"""npm packages that tests need, from the lock file of their folder: installed on first
use.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

#: No script of a package is run: nothing here needs one.
_INSTALL = ("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error")


class NpmError(RuntimeError):
    """The packages could not be installed; the message says how."""


def install(folder: Path, then: Callable[[], None] | None = None) -> Path:
    """Install what the folder's lock file names, if it is not there yet; return
    node_modules.

    Once for all processes that ask at the same time; `then` is called whenever the
    packages are new.
    """
    if os.environ.get("TESTS_WITHOUT_NPM"):
        msg = "`make test` does without npm: this test needs the mark `full`"
        raise NpmError(msg)
    modules = folder / "node_modules"
    stamp = modules / ".stamp"
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    # Locked on package.json: npm replaces node_modules, and a file of its own would be
    # one more to ignore.
    with (folder / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            run(_INSTALL, folder)
            if then is not None:
                then()
            stamp.write_text(wanted)
    return modules


def run(command: Sequence[str], folder: Path) -> None:
    """Run npm in a folder."""
    if shutil.which(command[0]) is None:
        msg = f"{command[0]} is missing: install the Debian packages nodejs and npm"
        raise NpmError(msg)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        msg = f"{' '.join(command)}: {(done.stderr or done.stdout)[-3000:]}"
        raise NpmError(msg)
