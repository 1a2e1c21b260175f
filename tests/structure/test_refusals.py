"""The tests of the layers see what they are there for: made-up modules that must be refused, and why."""

from __future__ import annotations

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


#: What is refused of modules, functions, and objects that are given; nothing of what asks nobody.
IO = {
    "import os.path": "os.path",
    "from urllib.request import urlopen": "urllib.request",
    "def f():\n    import socket": "socket",
    "from vllm_specdec_exporter import files": "vllm_specdec_exporter",
    "open('x')": "open",
    "def f(path): return [path.parent.joinpath(x).read_bytes() for x in 'ab']": "read_bytes",
    "import datetime\nNOW = datetime.datetime.now()": "now",
    "if TYPE_CHECKING:\n    from pathlib import Path": "",
    "import urllib.parse": "",
    "def f(text, now): return now(text.replace('a', 'b'))": "",
}

#: What is refused of the shell, also where a front door hands it out.
SHELL = {
    "from ..upstream import fetch": "upstream",
    "def f():\n    from ..upstream import fetch": "upstream",
    "from ..baseline import load": "baseline.file",
    "from ..baseline import compare": "",
    "if TYPE_CHECKING:\n    from ..upstream import fetch": "",
}


def test_io_and_the_shell_are_refused() -> None:
    assert {text: ", ".join(io_of(core(text))) for text in IO} == IO
    assert {text: ", ".join(shell_of(core(text))) for text in SHELL} == SHELL


def test_a_door_may_name_the_shell_unless_it_has_something_of_its_own() -> None:
    """Even one that defines nothing reads nothing."""

    def door(text: str) -> Module:
        return read({"": ("", True), "upstream": ("", False), "made": (text, True)})["made"]

    fetch = "from ..upstream import fetch\n"
    assert shell_of(door(f"{fetch}def __getattr__(name): ...\n")) == set()
    assert shell_of(door(f"{fetch}def read(body): return fetch(body)\n")) == {"upstream"}
    assert io_of(door("import pkgutil\nNAMES = [*pkgutil.iter_modules(__path__)]\n")) == {"pkgutil"}


def test_a_circle_of_modules_is_found_unless_they_import_each_other_late() -> None:
    for text, circles in (
        ("from .two import x", {"one -> two -> one", "two -> one -> two"}),
        ("def f():\n    from .two import x", {""}),
    ):
        made = read({"one": (text, False), "two": ("from .one import y", False)})
        assert circle(made) in circles, text


def test_a_circle_of_packages_is_found() -> None:
    """Where modules alone have an order: one needs a package that needs the module."""
    made = {
        "admission": ("from .web.turns import peer_of", False),
        "web": ("", True),
        "web.turns": ("", False),
        "web.guard": ("from ..admission import PROBES", False),
    }
    assert circle(read(made)) == ""
    assert circle_of_packages(read(made), ()) in {"admission -> web -> admission", "web -> admission -> web"}
    # A command elsewhere, with something of this package that nobody else uses, does not take that out of it.
    for_serve = {**made, "serve": ("from .web.guard import Guard", False)}
    assert circle_of_packages(read(for_serve), {"serve"}) != ""


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
