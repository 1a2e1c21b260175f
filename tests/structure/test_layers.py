"""The layers: a core of functions of values, that does no I/O and knows no clock, within a thin shell."""

from __future__ import annotations

from structure.circles import circle, circle_of_packages
from structure.imports import ROOT, modules
from structure.layers import ALLOWED, SHELL, asked, io_of, is_shell, shell_of
from vllm_specdec_exporter.cli import COMMANDS

CORE = [name for name in modules() if not is_shell(name)]


#: Beyond some 300 lines a module is looked at; this is where it is divided.
MOST_LINES = 350


def test_the_core_does_no_io() -> None:
    """It imports nothing that could, and calls nothing that asks the world."""
    assert {name: found for name in CORE if (found := io_of(modules()[name]))} == {}


def test_the_core_does_not_know_the_shell() -> None:
    """Nor through the front door of a package. Front doors only name what is behind them, core and shell."""
    assert {name: found for name in CORE if (found := shell_of(modules()[name]))} == {}


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


def test_one_concept_a_module() -> None:
    """One that grows past this is two."""
    assert [name for name, module in modules().items() if module.lines > MOST_LINES] == []


def test_every_package_says_what_it_is() -> None:
    """The first line of each module names its concept."""
    for path in sorted(ROOT.rglob("*.py")):
        assert path.read_text("utf-8").startswith(('"""', "from .cli", "#")), path.relative_to(ROOT)
