"""The layers: a core of functions of values, that does no I/O and knows no clock, within a thin shell."""

from __future__ import annotations

import pytest

from structure.circles import circle, circle_of_packages
from structure.imports import ROOT, modules
from structure.layers import ALLOWED, SHELL, asked, io_of, is_shell, shell_of
from vllm_specdec_exporter.cli import COMMANDS

CORE = [name for name in modules() if not is_shell(name)]


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_no_io(name: str) -> None:
    """It imports nothing that could, and calls nothing that asks the world."""
    assert io_of(modules()[name]) == set()


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_not_know_the_shell(name: str) -> None:
    """Nor through the front door of a package. Front doors only name what is behind them, core and shell."""
    assert shell_of(modules()[name]) == set()


def test_the_lists_are_current() -> None:
    """Each name is that of a module or package; each permission is used."""
    for name in SHELL:
        assert name in modules(), f"no module is called {name}"
    for name, what in ALLOWED:
        assert name in CORE, f"{name} is not of the core"
        assert what in asked(modules()[name]), f"{name} has no use for {what}"


def test_no_cycles() -> None:
    """What modules import as they are imported has an order."""
    assert circle(modules()) == ""


def test_no_cycles_between_packages() -> None:
    """Packages, and modules at the top, have an order as well: each can be read after those that it uses."""
    assert circle_of_packages(modules(), {module for module, _ in COMMANDS.values()}) == ""


@pytest.mark.parametrize("name", modules())
def test_sizes(name: str) -> None:
    """One concept a module: one that grows past this is two."""
    assert modules()[name].lines <= MOST_LINES


#: Beyond some 300 lines a module is looked at; this is where it is divided.
MOST_LINES = 350


def test_every_package_says_what_it_is() -> None:
    """The first line of each module names its concept."""
    for path in sorted(ROOT.rglob("*.py")):
        assert path.read_text("utf-8").startswith(('"""', "from .cli", "#")), path.relative_to(ROOT)
