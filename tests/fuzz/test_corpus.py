"""The seeds of every fuzz target, and what fuzzing found, keep the promises that the target states."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fuzz.run import instrumented

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))
REGRESSIONS = sorted(str(path.relative_to(HERE / "regressions")) for path in HERE.glob("regressions/*/*"))


def target(name: str) -> ModuleType | Any:
    """The module of a target."""
    return importlib.import_module(f"fuzz.targets.{name}")


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    """What fuzzing begins with is fine: the recorded answers and the documented examples."""
    seeds = list(target(name).seeds())
    assert len(seeds) > 10
    for seed in seeds:
        target(name).check(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_what_guides_the_fuzzer_is_there(name: str) -> None:
    """A module that was renamed would silently guide nothing any more."""
    assert instrumented(name) == target(name).INSTRUMENTED
    for module in instrumented(name):
        importlib.import_module(module)
    assert all(isinstance(word, bytes) and word for word in target(name).dictionary())


@pytest.mark.parametrize("case", REGRESSIONS)
def test_what_was_found_stays_mended(case: str) -> None:
    """Each input that once broke a promise, named by what it shows."""
    name = case.partition("/")[0]
    assert name in TARGETS
    target(name).check((HERE / "regressions" / case).read_bytes())
