"""The seeds of every fuzz target, and what fuzzing found, keep the promises that the target states."""

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_was_found_keep_the_promises(name: str) -> None:
    """What fuzzing begins with, the recorded answers and the documented examples; and what it found."""
    target = importlib.import_module(f"fuzz.targets.{name}")
    inputs = {f"seed {number}": seed for number, seed in enumerate(target.seeds())}
    assert len(inputs) > 10
    inputs |= {path.name: path.read_bytes() for path in HERE.glob(f"regressions/{name}/*")}
    broken = {}
    for case, data in inputs.items():
        try:
            target.check(data)
        except Exception as error:  # noqa: BLE001 whatever a parser may raise
            broken[case] = repr(error)
    assert broken == {}
