"""Programs of Debian's newest suite, where `make newer-programs` has unpacked them: a
test of several versions leaves out those that are not there.
"""

import pytest

from support.programs import find_program
from support.repository import ROOT

_PROGRAMS = ROOT / "build" / "newer" / "usr" / "bin"


def newer(name: str) -> str:
    """Return the path of a program of the newest suite, or skip the test."""
    path = _PROGRAMS / name
    if not path.exists():
        pytest.skip(f"a newer {name} is not there: make newer-programs")
    return str(path)


def of_suite(suite: str, name: str, package: str) -> str:
    """Return the path of a program that is `installed`, or of the `newest` suite."""
    if suite == "newest":
        return newer(name)
    return find_program(name, package)
