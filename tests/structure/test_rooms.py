"""The package is built of rooms that only look down, the lower ones pure."""

from structure import rooms
from structure.rooms import modules

MAX_LINES = 600  # about that of the longest module of h11, which is read in one go


def test_the_package_has_rooms_and_its_command_line_at_its_root_and_nothing_else() -> (
    None
):
    assert {name.partition(".")[0] for name in modules()} == {
        *rooms.ROOMS,
        "",
        "__main__",
        "cli",
    }


def test_every_room_says_its_rule_in_the_first_line() -> None:
    assert [
        name
        for name in rooms.ROOMS
        if len(modules()[name].summary) < len("exposition: what")
    ] == []


def test_no_room_imports_one_above_it() -> None:
    assert rooms.upward(modules()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert rooms.circle(modules()) == ""


def test_pure_modules_do_no_io_and_read_no_clock() -> None:
    assert rooms.impure(modules()) == []


def test_modules_are_short() -> None:
    assert [
        name for name, module in modules().items() if module.lines > MAX_LINES
    ] == []
