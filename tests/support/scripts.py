"""Scripts of the repository that are in no package, as modules."""

import importlib.util
import sys
from functools import cache
from types import ModuleType

from support.repository import ROOT

_ROOT = ROOT


@cache
def script(path: str) -> ModuleType:
    """Return the script at `path` below the repository's root as a module."""
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, _ROOT / path)
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look up the names in annotations.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
