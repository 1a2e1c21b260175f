"""docs/reference/commands.md: the reference is what the parsers say, and what they say
is what happens.
"""

import re
from typing import Any

import pytest

from support.commands import run_here
from support.repository import text_of
from support.scripts import script
from vllm_specdec_exporter.commands.table import COMMANDS
from vllm_specdec_exporter.settings.option_table import OPTIONS

TEXT = text_of("docs/reference/commands.md")


def section(name: str) -> str:
    """The part of the page on a command."""
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


#: Commands whose ``--help`` has not all flags.
SHORT = ("serve", "check", "compare")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_the_flags_and_exit_codes_of_the_help(name: str) -> None:
    """But for settings of `serve`, on a page of their own, and "2 bad usage", which the
    page says once.
    """
    help_flag = "--help-all" if name in SHORT else "--help"
    helped = run_here(name, help_flag, COLUMNS="100")
    assert (helped.code, helped.err) == (0, "")
    assert f"{name}: " in helped.out
    flags = set(re.findall(r"(?m)^ +(?:-h, )?(--[a-z](?:[\w.-]*\w)?)", helped.out))
    assert len(flags) >= 2
    expected = flags - {"--help", "--help-all", "--version"}
    if name == "serve":
        expected -= {option.flag for option in OPTIONS}
    page = section(name)
    assert [flag for flag in expected if flag not in page] == []
    rows = dict(re.findall(r"(?m)^\| (\d+) \| (.*) \|$", page))
    help_text = " ".join(helped.out.split())
    assert "0" in rows
    assert "2" in rows or "2 bad usage" in help_text
    assert [code for code in rows if f"{code} {rows[code]}" not in help_text] == []
    done = run_here(name, "--no-such-flag")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def defaults(name: str) -> dict[str, tuple[Any, str]]:
    """What a parser takes without a flag and what its help says, of flags whose default
    the parser knows.
    """
    module = script("docs/command_reference.py")  # which writes the page
    shown = {}
    for action in module.parser_of(name)._actions:
        flag = module._flag(action)
        simple = isinstance(action.default, str | int | float) and not isinstance(
            action.default, bool
        )
        if simple and action.default not in ("", "==SUPPRESS=="):
            shown[f"{name} {flag.shown}"] = (action.default, flag.default)
    return shown


def test_defaults_are_those_that_hold() -> None:
    """Numbers by value, as 60s is 60; words letter by letter."""
    documented = {}
    for name in COMMANDS:
        documented |= defaults(name)
    assert len(documented) > 30
    for flag, (held, said) in documented.items():
        is_word = str(held) in (said, said.partition(",")[0])
        assert is_word or _number(said) == held, flag


def _number(text: str) -> float | None:
    """Return a number of a duration or of digits; `None` for another text."""
    match = re.fullmatch(r"([\d.]+)(s|m|h|)", text)
    if match:
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
    return None
