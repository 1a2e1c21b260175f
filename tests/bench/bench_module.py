"""The benchmark's modules, which stand beside one another in a folder that is no
package.
"""

import importlib
import sys
from types import ModuleType

from support.repository import ROOT

FOLDER = ROOT / "bench"


def load(name: str) -> ModuleType:
    """Return a module of the benchmark."""
    sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
