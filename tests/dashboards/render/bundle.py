"""Build the page that draws dashboards: the packages of the lock file, then one bundle
of them and `src`.

Does nothing where both are current::

    PYTHONPATH=tests python tests/dashboards/render/bundle.py
"""

import fcntl
import hashlib
import sys
from pathlib import Path

from support.npm import NpmError, install, run

HERE = Path(__file__).parent
PAGE = HERE / "page.html"
BUILD = HERE / "build"

_BUILD = ("npm", "run", "--silent", "build")


def bundle() -> Path:
    """Build what is not current, once for all processes that ask at the same time;
    return the page.

    Raises:
        NpmError: npm is missing, or it failed; the message says how.
    """
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        modules = (install(HERE) / ".stamp").read_text()
        sources = (
            _digest([HERE / "package.json", *sorted((HERE / "src").iterdir())])
            + modules
        )
        stamp = BUILD / ".stamp"
        if not stamp.exists() or stamp.read_text() != sources:
            run(_BUILD, HERE)
            stamp.write_text(sources)
    return PAGE


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    try:
        print(bundle())
    except NpmError as error:
        sys.exit(f"error: {error}")
