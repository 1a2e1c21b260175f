"""The tests of the layers see what they are there for: made-up modules that must be refused, and why."""

from __future__ import annotations

import pytest

from structure.circles import circle, circle_of_packages
from structure.imports import Module, read
from structure.layers import io_of, shell_of


def core(text: str) -> Module:
    """Return a made-up module of the core, in a package with what it may import."""
    door = "from .file import load\nfrom .match import compare\n"
    return read(
        {
            "": ("", True),
            "made.up": (text, False),
            "upstream": ("", False),
            "baseline": (door, True),
            "baseline.file": ("", False),
            "baseline.match": ("", False),
        }
    )["made.up"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os", "os"),
        ("import os.path", "os.path"),
        ("from urllib.request import urlopen", "urllib.request"),
        ("import importlib.resources", "importlib.resources"),
        ("def f():\n    import socket", "socket"),
        ("import vllm_specdec_exporter.files", "vllm_specdec_exporter.files"),
        ("from vllm_specdec_exporter import files", "vllm_specdec_exporter"),
        ("open('x')", "open"),
        ("__import__('os')", "__import__"),
        ("def f(path: Path): return path.read_text('utf-8')", "read_text"),
        ("def f(path): return [path.parent.joinpath(x).read_bytes() for x in 'ab']", "read_bytes"),
        ("def f(path): path.write_text('')", "write_text"),
        ("def f(path): path.write_bytes(b'')", "write_bytes"),
        ("def f(path): return sorted(path.glob('*'))", "glob"),
        ("def f(path): return list(path.iterdir())", "iterdir"),
        ("def f(path):\n    with path.open() as file: return file", "open"),
        ("import datetime\nNOW = datetime.datetime.now()", "now"),
        ("from datetime import date as day\nTODAY = day.today()", "today"),
    ],
)
def test_io_is_refused(text: str, why: str) -> None:
    """Of modules, functions, and objects that are given."""
    assert io_of(core(text)) == {why}


@pytest.mark.parametrize(
    "text",
    [
        "if TYPE_CHECKING:\n    from pathlib import Path",
        "import urllib.parse",
        "from dataclasses import replace",
        "def f(text): return text.replace('a', 'b')",
        "def f(now): return now()",
    ],
)
def test_what_asks_nobody_is_not_refused(text: str) -> None:
    assert io_of(core(text)) == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from .. import upstream", {"upstream"}),
        ("from ..upstream import fetch", {"upstream"}),
        ("def f():\n    from ..upstream import fetch", {"upstream"}),
        ("from ..baseline.file import load", {"baseline.file"}),
        ("from ..baseline import load", {"baseline.file"}),
        ("from ..baseline import compare", set()),
        ("if TYPE_CHECKING:\n    from ..upstream import fetch", set()),
    ],
)
def test_the_shell_is_refused(text: str, why: set[str]) -> None:
    """Also where a front door hands it out."""
    assert shell_of(core(text)) == why


@pytest.mark.parametrize(
    ("door", "is_refused"),
    [
        ("from ..upstream import fetch\n", False),
        ("from ..upstream import fetch\ndef __getattr__(name): ...\n", False),
        ("from ..upstream import fetch\ndef read(body): return fetch(body)\n", True),
        ("from ..upstream import fetch\nclass Reader: ...\n", True),
    ],
)
def test_a_door_with_something_of_its_own_is_core(door: str, is_refused: bool) -> None:
    """One that only names things may name the shell."""
    made = read({"": ("", True), "upstream": ("", False), "made": (door, True)})["made"]
    assert shell_of(made) == ({"upstream"} if is_refused else set())


def test_a_door_reads_nothing() -> None:
    """Even one that defines nothing."""
    made = read({"made": ("import pkgutil\nNAMES = [m for m in pkgutil.iter_modules(__path__)]\n", True)})
    assert made["made"].is_door
    assert io_of(made["made"]) == {"pkgutil"}


# --- circles


def test_a_circle_of_modules_is_found() -> None:
    made = {"one": ("from .two import x", False), "two": ("from .one import y", False)}
    assert circle(read(made)) in {"one -> two -> one", "two -> one -> two"}


def test_modules_that_import_each_other_late_are_no_circle() -> None:
    made = {"one": ("def f():\n    from .two import x", False), "two": ("from .one import y", False)}
    assert circle(read(made)) == ""


#: A module that needs a package that needs the module, though no module needs itself.
FOLDED = {
    "admission": ("from .web.turns import peer_of", False),
    "web": ("", True),
    "web.turns": ("", False),
    "web.guard": ("from ..admission import PROBES", False),
}


def test_a_circle_of_packages_is_found() -> None:
    """Where modules alone have an order."""
    made = read(FOLDED)
    assert circle(made) == ""
    assert circle_of_packages(made, ()) in {"admission -> web -> admission", "web -> admission -> web"}


def test_a_command_is_no_part_of_its_package() -> None:
    """Nor is what it alone imports; what others import too is."""
    made = {
        "admission": ("from .web.turns import peer_of", False),
        "web": ("from .command import run", True),
        "web.turns": ("", False),
        "web.command": ("from .watch import watch", False),
        "web.watch": ("from ..admission import PROBES", False),
    }
    assert circle_of_packages(read(made), {"web.command"}) == ""
    assert circle_of_packages(read(made), ()) != ""
    with_another = {**made, "other": ("from .web.watch import watch", False)}
    assert circle_of_packages(read(with_another), {"web.command"}) != ""
    # Nor does a command elsewhere, with something of this package that nobody else uses, take that out of it.
    for_serve = {**FOLDED, "serve": ("from .web.guard import Guard", False)}
    assert circle_of_packages(read(for_serve), {"serve"}) != ""
