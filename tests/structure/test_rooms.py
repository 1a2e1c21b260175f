"""The package is built of rooms that only look down, the lower ones pure."""

from __future__ import annotations

from structure import rooms
from structure.rooms import modules

MAX_LINES = 350  # a module that is read in one go


def test_the_package_has_rooms_and_its_command_line_at_its_root_and_nothing_else() -> None:
    packages = {name.partition(".")[0] for name in modules() if "." in name}
    assert packages == set(rooms.ROOMS)
    assert {name for name in modules() if "." not in name} - packages == {"", "__main__", "cli"}


def test_every_room_says_its_rule_in_the_first_line() -> None:
    assert [name for name in rooms.ROOMS if len(modules()[name].summary) < len("exposition: what")] == []


def test_no_room_imports_one_above_it() -> None:
    assert rooms.upward(modules()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert rooms.circle(modules()) == ""


def test_pure_modules_do_no_io_and_read_no_clock() -> None:
    assert rooms.impure(modules()) == []


def test_modules_are_short() -> None:
    assert [name for name, module in modules().items() if module.lines > MAX_LINES] == []


def test_what_is_wrong_is_seen() -> None:
    """An import upwards for type checking, a circle within functions, and I/O by import or by method."""
    wrong = rooms.parse(
        {
            "": "",
            "engines": "",
            "engines.one": "if TYPE_CHECKING:\n    from ..serve.server import run",
            "engines.two": "def f():\n    from .three import x",
            "engines.three": "from . import two\nimport os.path",
            "serve": "",
            "serve.server": "from .. import __version__, main\npath.read_text()",
            "serve.pure": '"""A table. Pure."""\nopen("x")',
        }
    )
    assert rooms.upward(wrong) == [
        "engines.one -> serve.server",
        "serve.server -> the package itself",
    ]
    assert rooms.circle(wrong) in {
        "engines.two -> engines.three -> engines.two",
        "engines.three -> engines.two -> engines.three",
    }
    allowed = {f"{name}: {what}" for name, what in rooms.ALLOWED}
    assert set(rooms.impure(wrong)) - allowed == {"engines.three: os.path", "serve.pure: open"}
